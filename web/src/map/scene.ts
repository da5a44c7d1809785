// What the map draws, apart from where it comes from.

/** Shares of the time that are measured: at work, and waiting for others. */
export interface Spent {
  readonly busy: number;
  readonly waiting: number;
}

export const SPENT_NAMES = { busy: "at work", waiting: "waiting" } as const;

export interface MapMachine {
  readonly name: string;
  readonly region: string;
  /** Memory of all its GPUs together, in bytes: the area of its dot. */
  readonly memory: number;
  /** The job that trains on it, or null. */
  readonly job: string | null;
  /** All of its jobs, where it is shared. */
  readonly jobs: readonly string[];
  readonly lost: boolean;
  /** One sentence for hover and screen readers. */
  readonly about: string;
  /** How it spends its time, while a run is watched. */
  readonly spends?: Spent;
}

export interface MapRegion {
  readonly name: string;
  /** The name for people. */
  readonly label: string;
  readonly longitude: number;
  readonly latitude: number;
  readonly machines: readonly MapMachine[];
  readonly about: string;
}

export type LinkKind = "measured" | "estimated" | "blocked";

export interface MapLink {
  readonly id: string;
  readonly from: string;
  readonly to: string;
  /** Bytes that a step sends over it: its width. */
  readonly bytes: number;
  /** The largest share of a job's step that it costs: its colour. */
  readonly share: number;
  readonly kind: LinkKind;
  readonly jobs: readonly string[];
  readonly about: string;
}

/** Up to so many machines are always drawn one by one. */
export const FEW = 150;

export interface Scene {
  readonly regions: readonly MapRegion[];
  readonly links: readonly MapLink[];
}

export type Pick =
  | { readonly kind: "machine"; readonly name: string }
  | { readonly kind: "region"; readonly name: string }
  | { readonly kind: "job"; readonly name: string }
  | { readonly kind: "link"; readonly id: string };

export function samePick(a: Pick | null, b: Pick | null): boolean {
  if (a === null || b === null || a.kind !== b.kind) return a === b;
  return a.kind === "link" ? a.id === (b as typeof a).id : a.name === (b as typeof a).name;
}
