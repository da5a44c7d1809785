// The timeline of one job at a time, and the same as a table.
import type { HulkDocument, JobTimelineView, LiveStage, StageView } from "../contract.ts";
import { SPENT_NAMES } from "../map/scene.ts";
import { TimelineView } from "../timeline/view.ts";
import { KIND_COLOURS, KIND_NAMES, KINDS, kindsOf, readTimeline, rowIdle, rowSums, type Kind, type Row, type Timeline } from "../timeline/model.ts";
import { h, refill } from "../ui/dom.ts";
import { plural, seconds, share } from "../ui/format.ts";
import type { Marks } from "../ui/palette.ts";
import { table, type Column } from "../ui/table.ts";

export class TimelineSection {
  readonly element = h("div", { class: "card timeline-card" });
  private readonly view = new TimelineView();
  private readonly select = h("select", { class: "select", testid: "timeline-job", "aria-label": "Job of the timeline" });
  private readonly note = h("p", { class: "soft small" });
  private readonly tableBox = h("div");
  private readonly key = h("div", { class: "key" });
  private timelines: Record<string, JobTimelineView> = {};
  private cut: HulkDocument["cut"] = {};
  private marks: Marks = new Map();
  private used: ReadonlySet<Kind> = new Set();
  private measured = false;

  constructor() {
    this.select.addEventListener("change", () => this.draw(this.select.value));
  }

  show(document: HulkDocument, marks: Marks, ask: HTMLElement | null): void {
    this.marks = marks;
    this.timelines = document.timeline ?? {};
    this.cut = document.cut;
    const jobs = Object.keys(this.timelines);
    if (jobs.length === 0) {
      refill(this.element, h("div", { class: `empty${ask ? " waiting" : ""}` }, ask ? "One step, event by event." : "No timeline in this document.", ask));
      return;
    }
    const before = this.select.value;
    refill(this.select, ...jobs.map((job) => h("option", { value: job }, job)));
    const chosen = jobs.includes(before) ? before : jobs[0]!;
    this.select.value = chosen;
    refill(this.element, h("div", { class: "timeline-head" }, this.select, this.key, this.view.buttons), this.note, this.view.element, this.tableBox);
    this.draw(chosen);
  }

  /** Marks how busy stages really are, while a run is watched. */
  measure(stages: ReadonlyMap<string, LiveStage>): void {
    this.view.measure(stages);
    if (this.measured === stages.size > 0) return;
    this.measured = stages.size > 0;
    this.drawKey();
  }

  private draw(job: string): void {
    const source = this.timelines[job];
    if (!source) return;
    const timeline = readTimeline(job, source);
    this.view.show(timeline, this.marks);
    const notes = [`${seconds(source.step)} a step`, plural(timeline.rows.length, "row")];
    if (source.rows_left_out > 0) notes.push(`${plural(source.rows_left_out, "row")} like these left out`);
    const coarse = source.resolution > 0;
    const [until, since] = source.in_full;
    const between = until > 0 ? `between the first ${seconds(until)} and the last ${seconds(Math.max(0, timeline.length - since))}, which have every pass, ` : "";
    if (coarse) notes.push(`${between}a piece of ${seconds(source.resolution)} shows one thing, each as often as it took time`);
    this.note.textContent = notes.join(" · ");
    this.used = new Set(timeline.rows.flatMap(kindsOf));
    this.drawKey();
    refill(this.tableBox, coarse ? this.busyTable(timeline) : this.table(timeline, [...this.used]));
  }

  private drawKey(): void {
    const item = (swatch: HTMLElement, name: string): HTMLElement => h("span", {}, swatch, name);
    refill(this.key, ...KINDS.filter((kind) => this.used.has(kind)).map((kind) => {
      const swatch = h("i", { class: "swatch" });
      swatch.style.background = `var(${KIND_COLOURS[kind]})`;
      return item(swatch, KIND_NAMES[kind]);
    }), item(h("i", { class: "swatch part idle-time" }), "idle"),
    ...(this.measured ? (["busy", "waiting"] as const).map((part) => item(h("i", { class: `swatch spent-${part}` }), `measured, under the names: ${SPENT_NAMES[part]}`)) : []));
  }

  /** Where the timeline shows only what took most of each piece, sums over it would be wrong: how busy stages are comes from
   * the price then. */
  private busyTable(timeline: Timeline): HTMLElement {
    const pipelines = this.cut[timeline.job]?.pipelines ?? [];
    const rows = timeline.rows.filter((row) => row.source.lane === "compute").map(({ source }) => {
      const stages = (pipelines[source.pipeline]?.stages ?? []).filter((stage) => stage.slot === source.slot);
      const sum = (of: (stage: StageView) => number | null): number => stages.reduce((all, stage) => all + (of(stage) ?? 0), 0);
      return { source, busy: sum((stage) => stage.busy), forward: sum((stage) => stage.forward), backward: sum((stage) => stage.backward), send: sum((stage) => stage.send) };
    });
    type Line = (typeof rows)[number];
    const time = (name: string, of: (line: Line) => number): Column<Line> => ({ name, text: (line) => seconds(of(line)), by: of, numeric: true });
    return table<Line>({
      title: "The timeline in numbers, for one microbatch", testid: "timeline-table", rows, first: 12, columns: [
        { name: "pipeline", text: ({ source }) => String(source.pipeline + 1), by: ({ source }) => source.pipeline, numeric: true },
        { name: "stage", text: ({ source }) => String(source.slot + 1), by: ({ source }) => source.slot, numeric: true },
        { name: "machine", text: ({ source }) => source.machine },
        { name: "GPUs", text: ({ source }) => source.gpus.join(", ") },
        time("forward", (line) => line.forward), time("backward", (line) => line.backward), time("transfer", (line) => line.send),
        { name: "at work", text: (line) => share(line.busy), by: (line) => line.busy, numeric: true },
        { name: "idle", text: (line) => share(1 - line.busy), by: (line) => 1 - line.busy, numeric: true },
      ],
    });
  }

  private table(timeline: Timeline, kinds: readonly Kind[]): HTMLElement {
    const lines = timeline.rows.map((row) => ({ row, sums: rowSums(row), idle: rowIdle(row, timeline.length) }));
    type Line = (typeof lines)[number];
    const source = (line: Line): Row["source"] => line.row.source;
    const columns: Column<Line>[] = [
      { name: "pipeline", text: (line) => String(source(line).pipeline + 1), by: (line) => source(line).pipeline, numeric: true },
      { name: "stage", text: (line) => String(source(line).slot + 1), by: (line) => source(line).slot, numeric: true },
      { name: "machine", text: (line) => source(line).machine },
      { name: "what", text: (line) => (source(line).lane === "network" ? "network" : `GPU ${source(line).gpus.join(", ")}`) },
      ...KINDS.filter((kind) => kinds.includes(kind)).map((kind): Column<Line> => ({
        name: KIND_NAMES[kind], text: (line) => seconds(line.sums.get(kind) ?? 0), by: (line) => line.sums.get(kind) ?? 0, numeric: true,
      })),
      { name: "idle", text: (line) => seconds(line.idle), by: (line) => line.idle, numeric: true },
      { name: "at work", text: (line) => share(1 - line.idle / timeline.length), by: (line) => -line.idle, numeric: true },
    ];
    return table({ title: "The timeline in numbers", testid: "timeline-table", columns, rows: lines, first: 12 });
  }
}
