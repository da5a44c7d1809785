// A step as rows of spans, as the document tells it, made ready for drawing and for reading.
import type { JobTimelineView, TimelineRow } from "../contract.ts";

/** Letters of the document, in the order of the legend. */
export const KINDS = ["f", "b", "w", "u", "t", "s"] as const;
export type Kind = (typeof KINDS)[number];

export const KIND_NAMES: Readonly<Record<Kind, string>> = {
  f: "forward", b: "backward", w: "weight gradients", u: "update", t: "transfer", s: "sync",
};

/** The custom property of the style sheet that has each kind's colour. */
export const KIND_COLOURS: Readonly<Record<Kind, string>> = {
  f: "--forward", b: "--backward", w: "--weights", u: "--update", t: "--transfer", s: "--sync",
};

export interface Row {
  readonly name: string;
  readonly source: TimelineRow;
  readonly start: Float64Array;
  readonly end: Float64Array;
  /** The largest end up to each span: spans of a network may overlap, this never falls. */
  readonly reached: Float64Array;
}

export interface Timeline {
  readonly job: string;
  readonly rows: readonly Row[];
  /** Seconds from the begin of the step to its end. */
  readonly length: number;
}

export function rowName(row: TimelineRow): string {
  const lane = row.lane === "network" ? "network" : `GPU ${row.gpus.join("+")}`;
  return `${row.pipeline + 1}.${row.slot + 1}  ${row.machine}  ${lane}`;
}

/** Pipeline, stage and machine: where there is little room, a network is told by its thinner band. */
export function shortName(row: TimelineRow): string {
  return `${row.pipeline + 1}.${row.slot + 1} ${row.machine}`;
}

export function readTimeline(job: string, view: JobTimelineView): Timeline {
  const rows = view.rows.map((source) => {
    const n = source.at.length >> 1;
    const [start, end, reached] = [new Float64Array(n), new Float64Array(n), new Float64Array(n)];
    let most = 0;
    for (let i = 0; i < n; i += 1) {
      start[i] = source.at[2 * i]! * view.unit;
      end[i] = start[i]! + source.at[2 * i + 1]! * view.unit;
      most = Math.max(most, end[i]!);
      reached[i] = most;
    }
    return { name: rowName(source), source, start, end, reached };
  });
  const length = rows.reduce((most, row) => Math.max(most, row.reached[row.reached.length - 1] ?? 0), view.step);
  return { job, rows, length };
}

/** The kinds that a row has. */
export function kindsOf(row: Row): Kind[] {
  return KINDS.filter((kind) => row.source.kind.includes(kind));
}

export function kindOf(row: Row, index: number): Kind {
  return (row.source.kind[index] ?? "f") as Kind;
}

/** Seconds of each kind in a row. */
export function rowSums(row: Row): Map<Kind, number> {
  const sums = new Map<Kind, number>();
  for (let i = 0; i < row.start.length; i += 1) {
    const kind = kindOf(row, i);
    sums.set(kind, (sums.get(kind) ?? 0) + row.end[i]! - row.start[i]!);
  }
  return sums;
}

/** Seconds in which a row does nothing. */
export function rowIdle(row: Row, length: number): number {
  let idle = 0;
  let reached = 0;
  for (let i = 0; i < row.start.length; i += 1) {
    idle += Math.max(0, row.start[i]! - reached);
    reached = row.reached[i]!;
  }
  return idle + Math.max(0, length - reached);
}

/** The first span from which on something is seen after a time. */
export function firstAfter(row: Row, time: number): number {
  let low = 0;
  let high = row.reached.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row.reached[middle]! <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The span at a time, the last that began where several overlap; -1 where there is none. */
export function spanAt(row: Row, time: number): number {
  let found = -1;
  for (let i = firstAfter(row, time); i < row.start.length && row.start[i]! <= time; i += 1) {
    if (row.end[i]! >= time) found = i;
  }
  return found;
}

export interface View {
  readonly from: number;
  readonly to: number;
}

const CLOSEST = 1e-5; // of the whole step

/** Zooms a view around a time, within the step. */
export function zoomView(view: View, length: number, at: number, factor: number): View {
  const span = Math.min(length, Math.max(length * CLOSEST, (view.to - view.from) / factor));
  const share = (at - view.from) / (view.to - view.from);
  return clampView({ from: at - share * span, to: at + (1 - share) * span }, length);
}

export function panView(view: View, length: number, by: number): View {
  return clampView({ from: view.from + by, to: view.to + by }, length);
}

function clampView(view: View, length: number): View {
  const span = Math.min(length, view.to - view.from);
  const from = Math.max(0, Math.min(length - span, view.from));
  return { from, to: from + span };
}

/** What a stage of a job is known by. */
export function stageKey(job: string, pipeline: number, stage: number): string {
  return `${pipeline}.${stage} ${job}`;
}
