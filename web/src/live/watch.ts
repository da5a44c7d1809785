// Watching a run: its loss, its steps beside what was predicted, and how busy every stage is.
import type { Live, LiveStage } from "../contract.ts";
import { type Overlay, type Page } from "../page.ts";
import { announce } from "../ui/announce.ts";
import { h, percent, refill } from "../ui/dom.ts";
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
  private drawn = 0;

  constructor(private readonly page: Page, first: Live) {
    page.notes.append(h("section", { class: "card watch", testid: "live", "aria-label": "The run" }, this.state, this.loss.element, this.times.element, h("div", { class: "wide" }, this.stages.element)));
    if (first.document) page.show(first.document, overlay(first));
    this.show(first);
  }

  show(live: Live): void {
    const last = live.seconds[live.seconds.length - 1]?.[1];
    const lowest = live.loss[live.loss.length - 1]?.[1];
    refill(this.state, h("strong", {}, live.job),
      h("span", {}, `${STATES[live.state]}, step ${live.step.toLocaleString("en-US")}${live.steps === null ? "" : ` of ${live.steps.toLocaleString("en-US")}`}`),
      lowest === undefined ? null : h("span", {}, `loss ${lowest.toPrecision(4)}`),
      last === undefined ? null : h("span", {}, `${seconds(last)} a step${live.predicted === null ? "" : `, predicted ${seconds(live.predicted)}`}`),
      live.message ? h("span", { class: live.state === "failed" ? "refused" : "soft" }, live.message) : null);
    this.loss.draw([live.loss.map(([step]) => step), live.loss.map(([, loss]) => loss)]);
    const { predicted } = live;
    this.times.draw([live.seconds.map(([step]) => step), live.seconds.map(([, time]) => time), live.seconds.map(() => predicted)]);
    this.stages.update(live.stages);
    // The map is drawn anew at most every second: busy shares do not change faster than people see.
    const now = performance.now();
    if (now - this.drawn > 1000) {
      this.drawn = now;
      this.page.lay(overlay(live));
    }
  }
}

function overlay(live: Live): Overlay {
  const sums = new Map<string, { busy: number; n: number }>();
  for (const stage of live.stages) {
    const sum = sums.get(stage.machine) ?? { busy: 0, n: 0 };
    sums.set(stage.machine, { busy: sum.busy + stage.busy, n: sum.n + 1 });
  }
  return {
    whatif: null, lost: new Set(), busy: new Map([...sums].map(([machine, { busy, n }]) => [machine, busy / n])),
    measured: new Map(live.stages.map((stage) => [`${stage.pipeline}.${stage.stage}`, stage])),
  };
}

function stageTable(): TableView<LiveStage> {
  return tableView<LiveStage>({
    title: "Stages, now", testid: "live-table", rows: [], first: 60, columns: [
      { name: "pipeline", text: (stage) => String(stage.pipeline + 1), by: (stage) => stage.pipeline, numeric: true },
      { name: "stage", text: (stage) => String(stage.stage + 1), by: (stage) => stage.stage, numeric: true },
      { name: "machine", text: (stage) => stage.machine },
      { name: "", text: () => "", show: busyBar },
      { name: "busy", text: (stage) => share(stage.busy), by: (stage) => stage.busy, numeric: true },
      { name: "predicted", text: (stage) => (stage.predicted_busy === null ? "–" : share(stage.predicted_busy)), by: (stage) => stage.predicted_busy ?? -1, numeric: true },
      { name: "waiting", text: (stage) => share(stage.waiting), by: (stage) => stage.waiting, numeric: true },
    ],
  });
}

function busyBar(stage: LiveStage): HTMLElement {
  const busy = h("span", { class: "busy" });
  const waiting = h("span", { class: "waiting" });
  percent(busy, "width", stage.busy);
  percent(waiting, "width", stage.waiting);
  return h("span", { class: "busy-cell", "aria-hidden": "true" }, busy, waiting);
}
