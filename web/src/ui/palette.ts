// Colours that people with any colour vision tell apart (Okabe and Ito's set); every job also has a letter, because seven
// colours do not reach for every cluster.

const OKABE_ITO = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442"] as const;

export interface JobMark {
  readonly letter: string;
  readonly colour: string;
  /** Black or white, whichever reads better on the colour. */
  readonly ink: string;
}

export const IDLE: JobMark = { letter: "", colour: "var(--idle)", ink: "var(--ink)" };

/** A letter for each name that reminds of it: its first one that no other has yet, else the next free in the alphabet. */
export function letters(names: readonly string[]): string[] {
  const taken = new Set<string>();
  return names.map((name, index) => {
    const own = [...name.toUpperCase()].filter((sign) => sign >= "A" && sign <= "Z");
    const alphabet = Array.from({ length: 26 }, (_, at) => String.fromCharCode(65 + at));
    const free = [...own, ...alphabet].find((sign) => !taken.has(sign)) ?? String(index + 1);
    taken.add(free);
    return free;
  });
}

function luminance(hex: string): number {
  const channel = (at: number): number => {
    const value = parseInt(hex.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5);
}

/** White where it reaches a contrast of 4.5 to 1, else black. */
export function inkOn(hex: string): string {
  return 1.05 / (luminance(hex) + 0.05) >= 4.5 ? "#ffffff" : "#111111";
}

export function jobColour(index: number): string {
  return OKABE_ITO[index % OKABE_ITO.length] ?? OKABE_ITO[0];
}

export type Marks = ReadonlyMap<string, JobMark>;

export function marksOf(jobs: readonly string[]): Marks {
  const signs = letters(jobs);
  return new Map(jobs.map((name, index) => {
    const colour = jobColour(index);
    return [name, { letter: signs[index] ?? "", colour, ink: inkOn(colour) }];
  }));
}

export function markOf(marks: Marks, job: string | null): JobMark {
  return (job !== null && marks.get(job)) || IDLE;
}
