// The document that the page shows and the answers of the server, as src/hulk/view/document.py and `hulk serve` define them.
// SI units throughout: seconds, bytes, bytes a second, dollars, dollars a second.

export interface RegionView { name: string; label: string; latitude: number | null; longitude: number | null; egress: number }
export interface MachineView { name: string; region: string; gpu: string; gpus: number; memory: number; network: number; price: number }
export type Origin = "measured" | "estimated" | "blocked";
export interface LinkView {
  a: string; b: string; latency: number | null; bandwidth: number; origin: Origin; bandwidth_origin: Origin; trunk: number | null;
}
export interface ClusterView {
  name: string; about: string; regions: RegionView[]; machines: MachineView[]; links: LinkView[]; links_left_out: number;
}
export interface JobView {
  name: string; model: string; parameters: number; layers: number; sequence: number; global_batch: number; precision: string;
  optimizer: string; tokens: number | null; deadline: number | null; weight: number; allow: string[] | null; deny: string[]; place: string[];
}
export interface PartView { machine: string; gpus: number[] }
export interface StageView {
  machine: string; region: string; gpu: string; gpus: number[]; first: number; last: number; slot: number;
  forward: number | null; backward: number | null; send: number | null; busy: number | null;
  memory_used: number | null; memory: number; memory_parts: Record<string, number> | null;
  /** Further machines that hold it, where it is on several. */
  beside?: PartView[];
}
export interface PipelineView { microbatches: number; like: number; stages: StageView[] }
export interface CutView { options: string; pipelines: PipelineView[] }
export interface LinkTraffic { job: string; a: string; b: string; messages: number; sums: number; cost: number | null }
export interface PairTraffic { a: number[]; b: number[]; job: number[]; bytes: number[]; left_out: number }
export interface TrafficView { links: LinkTraffic[]; pairs: PairTraffic }
export interface TimelineRow {
  pipeline: number; slot: number; machine: string; gpus: number[]; lane: "compute" | "network";
  at: number[]; kind: string; micro: number[];
}
export interface JobTimelineView {
  step: number; unit: number; resolution: number;
  /** Seconds up to which, and from which on, rows have every span, where `resolution` is more than 0. */
  in_full: [number, number];
  spans: number; rows: TimelineRow[]; rows_left_out: number;
}
export interface BreakdownPart { part: string; seconds: number; share: number; text: string }
export interface JobWords {
  headline: string; group: string[]; plan: string; cut: string[]; step: BreakdownPart[]; sharing: string | null; memory: string;
  cost: string; deadline: string | null; bottleneck: string; would_help: string[] | null;
}
export interface Words {
  jobs: Record<string, JobWords>; cannot_run: Record<string, string>; waiting: Record<string, string>; idle: string | null; notes: string[];
}
export interface Bar { system: string; job: string; computation: number | null; communication: number | null }
export interface ComparisonView { comparison: Record<string, unknown>; verdict: string; notes: string[]; bars: Bar[] }
/** `hulk explain --json`, of which the page takes what would help; a job that cannot run has none. */
export interface Explanation { jobs: Record<string, { what_if?: { text: string }[] }> }
export interface ReplanView { replan: Record<string, unknown>; lines: string[] }
export interface Saved { id: string; parent: string | null; when: number; how: string }
export interface JobPrice {
  feasible: boolean; step_s: number | null; tokens_per_s?: number | null;
  money_per_step?: { total: number | null } | null;
}
export interface Price { jobs: Record<string, JobPrice> }
export interface HulkDocument {
  hulk: "view/1"; version: string; title: string; cluster: ClusterView; jobs: JobView[]; plan: Record<string, unknown>; price: Price;
  owner: number[]; cut: Record<string, CutView>; traffic: TrafficView; words: Words;
  timeline: Record<string, JobTimelineView> | null; comparison: ComparisonView | null; replan: ReplanView | null; saved: Saved | null;
}

export type Source = { name: string } | { text: string };
export type Change =
  | { kind: "lose"; machine: string }
  | { kind: "move"; machine: string; job: string | null }
  | { kind: "link"; a: string; b: string; factor: number }
  | { kind: "link"; a: string; b: string; setting: string }
  | { kind: "join"; text: string };

export interface Catalogue {
  version: string;
  clusters: { name: string; about: string; machines: number; gpus: number; regions: number }[];
  jobs: { name: string; about: string; jobs: string[] }[];
  models: string[]; gpu_types: string[]; targets: { name: string; about: string }[];
  limits: { bytes: number; machines: number; seconds: number; tasks: number };
}
export interface PlanOptions {
  seconds?: number; evaluations?: number; seed?: number; max_cost?: string | null; cheapest?: boolean; pin?: string[]; avoid?: string[];
}
export interface PlanEntry {
  id: string; parent: string | null; when: number; how: string; title: string; cluster: string; jobs: string[];
  steps: Record<string, number | null>;
}
export interface WhatIf {
  jobs: Record<string, { before: number | null; after: number | null; how: string; reason: string }>;
  lines: string[]; owner: number[]; idle: string | null; changed: boolean;
}
export interface ApiError { message: string; where: string | null; hint: string | null }
export interface LiveStage {
  pipeline: number; stage: number; machine: string; busy: number; waiting: number; predicted_busy: number | null;
}
/** A loss, or a time, is null where it is not a number. */
export interface LiveJob {
  job: string; step: number; loss: [number, number | null][]; seconds: [number, number | null][]; predicted: number | null; stages: LiveStage[];
}
export interface Live {
  steps: number | null; state: "starting" | "running" | "done" | "failed"; message: string; jobs: LiveJob[];
  /** How often the document has grown: it is asked for again then. */
  drawn: number; document?: HulkDocument | null;
}
export interface PageData { mode: "report" | "serve" | "live"; document?: HulkDocument; land?: unknown }
