// Paints the visible part of a timeline on a canvas. Spans thinner than a pixel are merged, so that a step of a hundred
// thousand spans paints as fast as one of a thousand.
import { scaleLinear } from "d3-scale";
import type { LiveStage } from "../contract.ts";
import { seconds } from "../ui/format.ts";
import type { Marks } from "../ui/palette.ts";
import { themeColour } from "../ui/theme.ts";
import { firstAfter, KIND_COLOURS, kindOf, KINDS, shortName, stageKey, type Kind, type Timeline, type View } from "./model.ts";

export interface Geometry {
  readonly width: number;
  readonly height: number;
  readonly labels: number;
  readonly axis: number;
  readonly row: number;
  readonly scroll: number;
  readonly font: number;
}

export interface Colours {
  readonly kinds: Readonly<Record<Kind, string>>;
  readonly ink: string;
  readonly soft: string;
  readonly line: string;
  readonly card: string;
  readonly idle: string;
  readonly accent: string;
  readonly busy: string;
  readonly waiting: string;
}

export function readColours(): Colours {
  return {
    kinds: Object.fromEntries(KINDS.map((kind) => [kind, themeColour(KIND_COLOURS[kind])])) as Record<Kind, string>,
    ink: themeColour("--ink"), soft: themeColour("--ink-soft"), line: themeColour("--line"), card: themeColour("--card"),
    idle: themeColour("--idle-time"), accent: themeColour("--accent"), busy: themeColour("--compute"), waiting: themeColour("--transfer"),
  };
}

/** What is drawn over the plan's step. */
export interface Over {
  readonly marks: Marks;
  readonly measured: ReadonlyMap<string, LiveStage>;
  /** The row that the keyboard is on, or -1. */
  readonly current: number;
}

/** The first of some names that fits a width, else the beginning of the last. */
function fitting(pen: CanvasRenderingContext2D, names: readonly string[], width: number): string {
  const whole = names.find((name) => pen.measureText(name).width <= width);
  if (whole !== undefined) return whole;
  const last = names[names.length - 1] ?? "";
  let until = last.length - 1;
  while (until > 1 && pen.measureText(`${last.slice(0, until)}…`).width > width) until -= 1;
  return `${last.slice(0, until)}…`;
}

/** Round times in the unit in which they are written. */
export function timeTicks(view: View, most: number): number[] {
  const unit = view.to >= 7200 ? 3600 : view.to >= 120 ? 60 : 1;
  return scaleLinear().domain([view.from / unit, view.to / unit]).ticks(most).map((tick) => tick * unit);
}

export function draw(
  pen: CanvasRenderingContext2D, timeline: Timeline, view: View, geometry: Geometry, colours: Colours, over: Over,
): void {
  const { marks, measured, current } = over;
  const { width, height, labels, axis, row, scroll, font } = geometry;
  pen.clearRect(0, 0, width, height);
  const x = scaleLinear().domain([view.from, view.to]).range([labels, width - 8]);
  const family = getComputedStyle(document.body).fontFamily;
  pen.font = `${font}px ${family}`;
  pen.textBaseline = "middle";

  const ticks = timeTicks(view, Math.max(2, Math.floor((width - labels) / (font * 8))));
  pen.strokeStyle = colours.line;
  pen.lineWidth = 1;
  pen.beginPath();
  for (const tick of ticks) {
    pen.moveTo(Math.round(x(tick)) + 0.5, axis);
    pen.lineTo(Math.round(x(tick)) + 0.5, height);
  }
  pen.stroke();

  const first = Math.max(0, Math.floor(scroll / row));
  const last = Math.min(timeline.rows.length - 1, Math.floor((scroll + height - axis) / row));
  for (let index = first; index <= last; index += 1) drawRow(index);

  // The axis last, over rows that are scrolled half out of sight.
  pen.fillStyle = colours.card;
  pen.fillRect(0, 0, width, axis);
  pen.fillStyle = colours.soft;
  pen.textAlign = "center";
  for (const tick of ticks) {
    const text = seconds(tick).replace(/\.0+ /, " ");
    const half = pen.measureText(text).width / 2;
    pen.fillText(text, Math.max(labels + half, Math.min(width - 8 - half, x(tick))), axis / 2);
  }
  pen.fillStyle = colours.line;
  pen.fillRect(0, axis - 1, width, 1);

  function drawRow(index: number): void {
    const line = timeline.rows[index]!;
    const top = axis + index * row - scroll;
    const mark = marks.get(timeline.job);
    if (index === current) {
      pen.fillStyle = colours.idle;
      pen.fillRect(0, top, labels - 4, row);
    }
    if (mark) {
      pen.fillStyle = mark.colour;
      pen.fillRect(4, top + 2, 4, row - 4);
    }
    pen.fillStyle = colours.ink;
    pen.textAlign = "left";
    pen.fillText(fitting(pen, [line.name, shortName(line.source)], labels - 22), 14, top + row / 2);
    pen.fillStyle = colours.idle;
    pen.fillRect(labels, top + 2, width - 8 - labels, row - 4);

    const network = line.source.lane === "network";
    let painted = -1;
    let kind: Kind | null = null;
    for (let at = firstAfter(line, view.from); at < line.start.length; at += 1) {
      if (line.start[at]! >= view.to) break;
      if (line.end[at]! <= view.from) continue;
      const left = Math.max(labels, x(line.start[at]!));
      const right = Math.min(width - 8, x(line.end[at]!));
      const own = kindOf(line, at);
      if (right <= painted + 0.5 && own === kind) continue;
      pen.fillStyle = colours.kinds[own];
      const wide = Math.max(right - left, 0.6);
      // A gap between neighbours as soon as there is room to see it; the network is a thinner band than the GPUs.
      pen.fillRect(left, top + (network ? row * 0.3 : 2), wide > 4 ? wide - 0.7 : wide, network ? row * 0.4 : row - 4);
      painted = right;
      kind = own;
    }
    const stage = network ? undefined : measured.get(stageKey(timeline.job, line.source.pipeline, line.source.slot));
    if (stage) {
      // Under the name: how much of the time the stage really works, and really waits.
      const wide = labels - 22;
      pen.fillStyle = colours.busy;
      pen.fillRect(14, top + row - 4, wide * Math.min(1, stage.busy), 3);
      pen.fillStyle = colours.waiting;
      pen.fillRect(14 + wide * stage.busy, top + row - 4, wide * Math.max(0, Math.min(1 - stage.busy, stage.waiting)), 3);
    }
    if (index > 0 && timeline.rows[index - 1]!.source.pipeline !== line.source.pipeline) {
      pen.fillStyle = colours.soft;
      pen.fillRect(0, Math.round(top) - 0.5, width, 1);
    }
  }
}
