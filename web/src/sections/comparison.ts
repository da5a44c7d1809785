// Bars of computation and communication of every system, for every job, as the paper draws them; and the same as a table.
import type { Bar, ComparisonView } from "../contract.ts";
import { badge } from "../ui/badge.ts";
import { h, percent, refill, type Child } from "../ui/dom.ts";
import { seconds } from "../ui/format.ts";
import { markOf, type Marks } from "../ui/palette.ts";
import { table } from "../ui/table.ts";

export class Comparison {
  readonly element = h("div", { class: "card comparison", testid: "comparison" });

  /** With buttons that ask for one, where there is somebody to ask. */
  show(comparison: ComparisonView | null, marks: Marks, ask: HTMLElement | null): void {
    if (!comparison) {
      refill(this.element, h("p", { class: "soft" }, ask ? "Hulk and others on the same machines and jobs, each planned anew and priced by the same model." : "Not part of this report."), ask);
      return;
    }
    const jobs = [...new Set(comparison.bars.map((bar) => bar.job))];
    refill(this.element,
      h("p", { class: "verdict" }, comparison.verdict),
      h("div", { class: "key", "aria-hidden": "true" },
        h("span", {}, h("i", { class: "swatch part compute" }), "computation"), h("span", {}, h("i", { class: "swatch part transfer" }), "communication")),
      h("div", { class: "bars-grid" }, ...jobs.map((job) => jobBars(job, comparison.bars.filter((bar) => bar.job === job), marks))),
      systemList(comparison),
      comparison.notes.length > 0 && h("ul", { class: "plain-list" }, ...comparison.notes.map((note) => h("li", {}, note))),
      table<Bar>({
        title: "The comparison in numbers", testid: "comparison-table", rows: comparison.bars, columns: [
          { name: "system", text: (bar) => bar.system },
          { name: "job", text: (bar) => bar.job },
          { name: "computation", text: (bar) => time(bar.computation), by: (bar) => bar.computation ?? -1, numeric: true },
          { name: "communication", text: (bar) => time(bar.communication), by: (bar) => bar.communication ?? -1, numeric: true },
          { name: "step", text: (bar) => time(whole(bar)), by: (bar) => whole(bar) ?? -1, numeric: true },
        ],
      }), ask);
  }
}

/** What the short names of systems mean, by the comparison's own titles. */
function systemList(comparison: ComparisonView): HTMLElement | null {
  const systems = comparison.comparison["systems"] as Record<string, { title?: string }> | undefined;
  const named = Object.entries(systems ?? {}).filter(([, system]) => system.title);
  return named.length === 0 ? null : h("dl", { class: "fact-list systems" }, ...named.flatMap(([name, system]) => [h("dt", {}, name), h("dd", {}, system.title)]));
}

function whole(bar: Bar): number | null {
  return bar.computation === null ? null : bar.computation + (bar.communication ?? 0);
}

function time(value: number | null): string {
  return value === null ? "waits" : seconds(value);
}

function jobBars(job: string, bars: readonly Bar[], marks: Marks): HTMLElement {
  const longest = longestShown(bars.map((bar) => whole(bar)));
  return h("figure", { class: "bars" }, h("h3", {}, badge(markOf(marks, job)), job), ...bars.map((bar) => row(bar, longest)));
}

/** The length that fills the width. One system that takes days would leave the others without a visible bar: bars beyond
 * twelve times the shortest are cut, and drawn as cut. */
export function longestShown(sums: readonly (number | null)[]): number {
  const known = sums.filter((sum): sum is number => sum !== null && sum > 0);
  const least = Math.min(...known);
  return Math.max(1e-12, ...known.filter((sum) => sum <= 12 * least));
}

function row(bar: Bar, longest: number): HTMLElement {
  const sum = whole(bar);
  const cut = sum !== null && sum > longest * 1.001;
  const track = h("div", { class: `bar-track${sum === null ? " none" : ""}${cut ? " cut-off" : ""}`, role: "img",
    "aria-label": sum === null ? "waits" : `computation ${time(bar.computation)}, communication ${time(bar.communication)}` });
  const part = (kind: "computation" | "communication"): Child => {
    const piece = h("span", { class: kind, title: `${kind} ${time(bar[kind])}` });
    percent(piece, "width", (bar[kind] ?? 0) / (cut ? sum : longest));
    return piece;
  };
  if (sum === null) track.append("the job waits");
  else track.append(part("computation") as Node, part("communication") as Node);
  return h("div", { class: `bar-row${bar.system.toLowerCase() === "hulk" ? " own" : ""}`, testid: "comparison-bar", "data-system": bar.system, "data-job": bar.job },
    h("span", {}, bar.system), track, h("span", {}, sum === null ? "" : seconds(sum)));
}
