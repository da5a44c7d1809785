// Talking to the server: JSON requests, and tasks that tell how they go by server-sent events.
import type { ApiError } from "../contract.ts";

export class Problem extends Error {
  constructor(readonly status: number, readonly detail: ApiError) {
    super(detail.message);
  }

  /** Message and hint as one text. */
  get text(): string {
    return [this.detail.where, this.detail.message, this.detail.hint].filter(Boolean).join("\n");
  }
}

async function problemOf(answer: Response): Promise<Problem> {
  try {
    const body = await answer.json() as { error?: ApiError };
    if (body.error) return new Problem(answer.status, body.error);
  } catch {
    // not JSON: the status says what there is to say
  }
  return new Problem(answer.status, { message: `the server answered ${answer.status} ${answer.statusText}`, where: null, hint: null });
}

async function ask(method: string, path: string, body?: unknown): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(path, {
      method,
      headers: { "X-Hulk": "1", ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
      // A task is also cancelled by somebody who leaves the page.
      keepalive: method === "DELETE",
    });
  } catch {
    throw new Problem(0, { message: "the server does not answer", where: null, hint: "is `hulk serve` still running?" });
  }
  if (!answer.ok) throw await problemOf(answer);
  return answer;
}

export async function get<T>(path: string): Promise<T> {
  return await (await ask("GET", path)).json() as T;
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  return await (await ask("POST", path, body)).json() as T;
}

export async function remove(path: string): Promise<void> {
  await ask("DELETE", path);
}

/** A file that the server makes, with the name it gives. */
export async function file(path: string): Promise<{ name: string; blob: Blob }> {
  const answer = await ask("GET", path);
  const said = /filename="?([^";]+)"?/.exec(answer.headers.get("Content-Disposition") ?? "")?.[1];
  const own = path.split("?")[0]?.split("/").pop() ?? "file";
  return { name: said ?? own, blob: await answer.blob() };
}

export interface Progress {
  /** Words for the status line. */
  readonly say: (text: string) => void;
  /** Called with a function that cancels the task. */
  readonly started?: (cancel: () => void) => void;
}

export class Cancelled extends Error {}

/** Follows a task to its end. EventSource connects anew by itself; the server then tells the present state first. */
export function follow<T>(task: string, progress: Progress): Promise<T> {
  const path = `/api/tasks/${encodeURIComponent(task)}`;
  return new Promise((done, failed) => {
    const events = new EventSource(`${path}/events`);
    const on = (name: string, act: (data: Record<string, unknown>) => void): void =>
      events.addEventListener(name, (event) => act(JSON.parse((event as MessageEvent<string>).data || "{}") as Record<string, unknown>));
    const end = (act: () => void): void => {
      events.close();
      act();
    };
    progress.started?.(() => void remove(path).catch(() => undefined));
    on("queued", ({ ahead }) => progress.say(Number(ahead) > 0 ? `waiting, ${String(ahead)} before` : "waiting"));
    on("running", () => progress.say("at work"));
    on("progress", ({ text }) => progress.say(String(text)));
    on("done", (result) => end(() => done(result as T)));
    on("failed", ({ error }) => end(() => failed(new Problem(422, error as ApiError))));
    on("cancelled", () => end(() => failed(new Cancelled("cancelled"))));
    events.onerror = () => {
      if (events.readyState === EventSource.CLOSED) end(() => failed(new Problem(0, { message: "the connection to the server broke", where: null, hint: null })));
    };
  });
}
