// The timeline: a canvas that can be zoomed and moved by pointer and keyboard, and says what is under the pointer.
import type { LiveStage } from "../contract.ts";
import { announce } from "../ui/announce.ts";
import { h, icon } from "../ui/dom.ts";
import { seconds, share } from "../ui/format.ts";
import type { Marks } from "../ui/palette.ts";
import { onThemeChange } from "../ui/theme.ts";
import { spentWords } from "../map/from_document.ts";
import { Tooltip } from "../map/tooltip.ts";
import { draw, readColours, type Colours, type Geometry } from "./draw.ts";
import { KIND_NAMES, kindOf, panView, rowIdle, rowSums, spanAt, stageKey, zoomView, type Row, type Timeline, type View } from "./model.ts";

function about(row: Row, span: number): string {
  if (span < 0) return `idle\n${row.name}`;
  const micro = row.source.micro[span] ?? -1;
  const name = KIND_NAMES[kindOf(row, span)] + (micro >= 0 ? `, microbatch ${micro + 1}` : "");
  const [start, end] = [row.start[span]!, row.end[span]!];
  return `${name}\n${row.name}\n${seconds(end - start)}, from ${seconds(start)} to ${seconds(end)}`;
}

export class TimelineView {
  readonly element: HTMLElement;
  readonly buttons: HTMLElement;
  private readonly canvas = h("canvas", { class: "timeline-canvas", testid: "timeline", "aria-hidden": "true" });
  private readonly spacer = h("div", { class: "timeline-spacer" });
  private readonly box: HTMLElement;
  private readonly tooltip = new Tooltip();
  private colours: Colours | null = null;
  private view: View = { from: 0, to: 1 };
  private timeline: Timeline = { job: "", rows: [], length: 1 };
  private marks: Marks = new Map();
  private current = -1;
  private frame = 0;
  private rem = 16;
  private measured: ReadonlyMap<string, LiveStage> = new Map();

  constructor() {
    this.box = h("div", {
      class: "timeline-box", tabindex: "0", role: "application", testid: "timeline-box",
      "aria-label": "Timeline of one step. Left and right move, plus and minus zoom, 0 shows the whole step, up and down read the rows. The table below has the same numbers.",
    }, this.canvas, this.spacer);
    const button = (name: string, testid: string, path: string, act: () => void): HTMLButtonElement =>
      h("button", { type: "button", class: "button icon-button", "aria-label": name, title: name, testid, on: { click: act } }, icon(path));
    this.buttons = h("div", { class: "group timeline-buttons", role: "group", "aria-label": "Zoom of the timeline" },
      button("Zoom in", "timeline-in", "M12 5v14M5 12h14", () => this.zoom(2)),
      button("Zoom out", "timeline-out", "M5 12h14", () => this.zoom(0.5)),
      button("Whole step", "timeline-fit", "M3 12h18M3 12l4-4M3 12l4 4M21 12l-4-4M21 12l-4 4", () => this.whole()));
    this.element = h("div", { class: "timeline" }, this.box, this.tooltip.element);
    this.listen();
    new ResizeObserver(() => this.ask()).observe(this.box);
    onThemeChange(() => {
      this.colours = null;
      this.ask();
    });
  }

  show(timeline: Timeline, marks: Marks): void {
    this.timeline = timeline;
    this.marks = marks;
    this.current = -1;
    this.box.scrollTop = 0;
    this.whole();
  }

  measure(stages: ReadonlyMap<string, LiveStage>): void {
    this.measured = stages;
    this.ask();
  }

  /** How a row's stage really spends its time, while a run is watched. */
  private measuredOf({ source }: Row): string {
    const stage = source.lane === "network" ? undefined : this.measured.get(stageKey(this.timeline.job, source.pipeline, source.slot));
    return stage ? spentWords(stage) : "";
  }

  private get geometry(): Geometry {
    const width = this.box.clientWidth;
    const row = Math.round(this.rem * (this.timeline.rows.length > 40 ? 1 : 1.35));
    return {
      width, height: this.box.clientHeight, labels: Math.min(this.rem * 13, Math.max(width * 0.3, this.rem * 8)), axis: Math.round(this.rem * 1.7), row,
      scroll: this.box.scrollTop, font: Math.min(this.rem * 0.78, row * 0.82),
    };
  }

  private ask(): void {
    if (this.frame === 0) this.frame = requestAnimationFrame(() => this.paint());
  }

  private paint(): void {
    this.frame = 0;
    this.rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const geometry = this.geometry;
    if (geometry.width === 0) return;
    const content = geometry.axis + this.timeline.rows.length * geometry.row + 6;
    this.box.style.height = `${Math.min(content, this.rem * 30)}px`;
    this.spacer.style.height = `${Math.max(0, content - this.box.clientHeight)}px`;
    const size = this.geometry;
    const dense = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(size.width * dense), Math.round(size.height * dense)];
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
      this.canvas.style.width = `${size.width}px`;
      this.canvas.style.height = `${size.height}px`;
    }
    const pen = this.canvas.getContext("2d");
    if (!pen) return;
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    this.colours ??= readColours();
    draw(pen, this.timeline, this.view, size, this.colours, { marks: this.marks, measured: this.measured, current: this.current });
  }

  private whole(): void {
    this.view = { from: 0, to: Math.max(1e-12, this.timeline.length) };
    this.ask();
  }

  private zoom(factor: number, at = (this.view.from + this.view.to) / 2): void {
    this.view = zoomView(this.view, this.timeline.length, at, factor);
    this.ask();
  }

  private pan(by: number): void {
    this.view = panView(this.view, this.timeline.length, by);
    this.ask();
  }

  private timeAt(clientX: number): number {
    const { labels, width } = this.geometry;
    const at = (clientX - this.box.getBoundingClientRect().x - labels) / (width - 8 - labels);
    return this.view.from + Math.max(0, Math.min(1, at)) * (this.view.to - this.view.from);
  }

  private rowAt(clientY: number): number {
    const { axis, row, scroll } = this.geometry;
    const y = clientY - this.box.getBoundingClientRect().y;
    return y < axis ? -1 : Math.floor((y - axis + scroll) / row);
  }

  private step(by: number): void {
    this.current = Math.max(0, Math.min(this.timeline.rows.length - 1, this.current + by));
    const row = this.timeline.rows[this.current];
    if (!row) return;
    const { axis, row: tall, height, scroll } = this.geometry;
    const top = this.current * tall;
    if (top < scroll) this.box.scrollTop = top;
    else if (top + tall > scroll + height - axis) this.box.scrollTop = top + tall - height + axis;
    const sums: (readonly [string, number])[] = [...rowSums(row)].map(([kind, lasts]) => [KIND_NAMES[kind], lasts]);
    sums.push(["idle", rowIdle(row, this.timeline.length)]);
    announce(`${row.name}: ${sums.map(([name, lasts]) => `${name} ${seconds(lasts)} (${share(lasts / this.timeline.length)})`).join(", ")}; ${this.measuredOf(row)}`.replace(/; $/, ""));
    this.ask();
  }

  private hover(event: PointerEvent): void {
    const row = this.timeline.rows[this.rowAt(event.clientY)];
    const box = this.element.getBoundingClientRect();
    const measured = row ? this.measuredOf(row) : "";
    const onName = event.clientX - box.x < this.geometry.labels;
    if (!row || (onName && !measured)) {
      this.tooltip.hide();
      return;
    }
    const planned = onName ? row.name : about(row, spanAt(row, this.timeAt(event.clientX)));
    this.tooltip.show(planned + (measured && `\n${measured}`), event.clientX - box.x, event.clientY - box.y, box.width);
  }

  private listen(): void {
    this.box.addEventListener("scroll", () => this.ask());
    this.box.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        this.zoom(2 ** (-event.deltaY / 200), this.timeAt(event.clientX));
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        this.pan((event.deltaX || event.deltaY) / 800 * (this.view.to - this.view.from));
      }
    }, { passive: false });
    this.box.addEventListener("dblclick", (event) => this.zoom(2.5, this.timeAt(event.clientX)));
    let held: { x: number; view: View } | null = null;
    this.canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch" && this.view.to - this.view.from >= this.timeline.length) return;
      held = { x: event.clientX, view: this.view };
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!held) return this.hover(event);
      const { width, labels } = this.geometry;
      const by = (held.x - event.clientX) / (width - labels) * (held.view.to - held.view.from);
      this.view = panView(held.view, this.timeline.length, by);
      this.ask();
    });
    const release = (): void => {
      held = null;
    };
    this.canvas.addEventListener("pointerup", release);
    this.canvas.addEventListener("pointercancel", release);
    this.canvas.addEventListener("pointerleave", () => this.tooltip.hide());
    this.box.addEventListener("keydown", (event) => {
      const span = this.view.to - this.view.from;
      const acts: Record<string, () => void> = {
        ArrowLeft: () => this.pan(-span / 8), ArrowRight: () => this.pan(span / 8),
        ArrowUp: () => this.step(-1), ArrowDown: () => this.step(1),
        "+": () => this.zoom(1.6), "=": () => this.zoom(1.6), "-": () => this.zoom(1 / 1.6), "0": () => this.whole(),
      };
      const act = acts[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
  }
}
