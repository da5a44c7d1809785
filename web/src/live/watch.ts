// Watching a run: its loss, its steps beside what was predicted, and how busy every stage is.
import type { Live, LiveJob, LiveStage } from "../contract.ts";
import { type Overlay, type Page } from "../page.ts";
import { announce } from "../ui/announce.ts";
import { h, refill } from "../ui/dom.ts";
import { stageKey } from "../timeline/model.ts";
import { spentBar } from "../sections/parts.ts";
import { seconds, share } from "../ui/format.ts";
import { tableView, type TableView } from "../ui/table.ts";
import { get } from "./api.ts";
import { Curve } from "./curve.ts";

const STATES = { starting: "starting", running: "running", done: "done", failed: "failed" } as const;

export async function startWatch(page: Page): Promise<void> {
  const first = await get<Live>("/api/live");
  const watch = new Watch(page, first);
  const events = new EventSource("/api/live/events");
  events.addEventListener("live", (event) => watch.show(JSON.parse((event as MessageEvent<string>).data) as Live));
  events.onerror = () => {
    if (events.readyState === EventSource.CLOSED) announce("The run is over or its server is gone", "bad");
  };
}

class Watch {
  private readonly state = h("div", { class: "watch-state wide", testid: "live-state" });
  private readonly loss = new Curve("Loss", "live-loss", [{ name: "loss", colour: "--compute" }], (value) => value.toPrecision(4));
  private readonly times = new Curve("Seconds a step", "live-seconds",
    [{ name: "measured", colour: "--compute" }, { name: "predicted", colour: "--transfer", dashed: true }], seconds);
  private readonly stages = stageTable();
  private readonly select = h("select", { class: "select", testid: "live-job", "aria-label": "Job that is watched" });
  private last: Live;
  private laid = -1000;
  private waits = false;
  private drawn = 0;

  constructor(private readonly page: Page, first: Live) {
    this.last = first;
    this.select.append(...first.jobs.map(({ job }) => h("option", { value: job }, job)));
    this.select.addEventListener("change", () => this.curves());
    page.notes.append(h("section", { class: "card watch", testid: "live", "aria-label": "The run" }, this.state, this.loss.element, this.times.element, h("div", { class: "wide" }, this.stages.element)));
    this.draw(first);
    this.show(first);
  }

  show(live: Live): void {
    this.last = live;
    this.curves();
    if (live.drawn > this.drawn) {
      this.drawn = live.drawn;
      void get<Live>("/api/live").then((whole) => this.draw(whole)).catch(() => undefined);
    }
    // The map is drawn anew at most every second: busy shares do not change faster than people see. What came meanwhile is
    // drawn then, as the next step may be minutes away.
    if (this.waits) return;
    this.waits = true;
    setTimeout(() => {
      this.waits = false;
      this.laid = performance.now();
      this.page.lay(overlay(this.last));
    }, Math.max(0, 1000 - (performance.now() - this.laid)));
  }

  private draw(live: Live): void {
    this.drawn = live.drawn;
    if (live.document) this.page.show(live.document, overlay(live));
  }

  /** The chosen job's curves and stages. */
  private curves(): void {
    const { last: live } = this;
    const job = live.jobs.find((one) => one.job === this.select.value) ?? live.jobs[0];
    if (!job) return;
    const last = job.seconds[job.seconds.length - 1]?.[1];
    const loss = job.loss[job.loss.length - 1]?.[1];
    const { predicted } = job;
    const choosing = document.activeElement === this.select;
    refill(this.state, live.jobs.length > 1 ? this.select : h("strong", {}, job.job),
      h("span", {}, `${STATES[live.state]}, step ${job.step.toLocaleString("en-US")}${live.steps === null ? "" : ` of ${live.steps.toLocaleString("en-US")}`}`),
      loss === undefined ? null : loss === null ? h("span", { class: "refused" }, "loss is not a number") : h("span", {}, `loss ${loss.toPrecision(4)}`),
      last === undefined || last === null ? null : h("span", {}, `${seconds(last)} a step${predicted === null ? "" : `, predicted ${seconds(predicted)}`}`),
      live.message ? h("span", { class: live.state === "failed" ? "refused" : "soft" }, live.message) : null);
    if (choosing) this.select.focus({ preventScroll: true });
    this.loss.draw([job.loss.map(([step]) => step), job.loss.map(([, loss]) => loss)]);
    this.times.draw([job.seconds.map(([step]) => step), job.seconds.map(([, time]) => time), job.seconds.map(() => predicted)]);
    this.stages.update(job.stages);
  }
}

function overlay(live: Live): Overlay {
  const of = new Map<string, LiveStage[]>();
  for (const stage of live.jobs.flatMap(({ stages }) => stages)) of.set(stage.machine, [...(of.get(stage.machine) ?? []), stage]);
  // Of several stages on a machine, their mean.
  const mean = (stages: readonly LiveStage[], part: (stage: LiveStage) => number): number => stages.reduce((sum, stage) => sum + part(stage), 0) / stages.length;
  const keyed = ({ job, stages }: LiveJob): [string, LiveStage][] => stages.map((stage) => [stageKey(job, stage.pipeline, stage.stage), stage]);
  return {
    whatif: null, lost: new Set(), spent: new Map([...of].map(([machine, stages]) => [machine, { busy: mean(stages, ({ busy }) => busy), waiting: mean(stages, ({ waiting }) => waiting) }])),
    measured: new Map(live.jobs.flatMap(keyed)),
  };
}

function stageTable(): TableView<LiveStage> {
  return tableView<LiveStage>({
    title: "Stages, now", testid: "live-table", rows: [], first: 60, columns: [
      { name: "pipeline", text: (stage) => String(stage.pipeline + 1), by: (stage) => stage.pipeline, numeric: true },
      { name: "stage", text: (stage) => String(stage.stage + 1), by: (stage) => stage.stage, numeric: true },
      { name: "machine", text: (stage) => stage.machine },
      { name: "", text: () => "", show: spentBar },
      { name: "busy", text: (stage) => share(stage.busy), by: (stage) => stage.busy, numeric: true },
      { name: "predicted", text: (stage) => (stage.predicted_busy === null ? "–" : share(stage.predicted_busy)), by: (stage) => stage.predicted_busy ?? -1, numeric: true },
      { name: "waiting", text: (stage) => share(stage.waiting), by: (stage) => stage.waiting, numeric: true },
    ],
  });
}

