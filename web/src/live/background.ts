// What the server makes of a plan although nobody has asked yet. It gives way as soon as a person wants something.
import { Cancelled, follow, post } from "./api.ts";

const PAUSE = 700; // milliseconds in which a person may go on before the server is asked for more

class Run {
  stopped = false;
  cancel: (() => void) | null = null;

  constructor(readonly plan: string) {}

  stop(): void {
    this.stopped = true;
    this.cancel?.();
  }

  /** One task from its start to its result; ends with Cancelled where the run was stopped meanwhile. */
  async ask<T>(path: string): Promise<T> {
    if (this.stopped) throw new Cancelled("stopped");
    const { task } = await post<{ task: string }>(path, {});
    return await follow<T>(task, {
      say: () => undefined,
      started: (cancel) => {
        this.cancel = cancel;
        if (this.stopped) cancel();
      },
    });
  }
}

export type Ask = <T>(path: string) => Promise<T>;

export class Background {
  private run: Run | null = null;

  constructor() {
    addEventListener("pagehide", () => this.stop());
  }

  /** Begins work on a plan, unless that is under way; work on another plan is stopped. */
  async start(plan: string, work: (ask: Ask) => Promise<void>): Promise<void> {
    if (this.run?.plan === plan && !this.run.stopped) return;
    this.stop();
    const run = new Run(plan);
    this.run = run;
    await new Promise((go) => setTimeout(go, PAUSE));
    try {
      if (!run.stopped) await work((path) => run.ask(path));
    } catch (error) {
      if (!(error instanceof Cancelled)) throw error;
    } finally {
      if (this.run === run) this.run = null;
    }
  }

  stop(): void {
    this.run?.stop();
    this.run = null;
  }
}
