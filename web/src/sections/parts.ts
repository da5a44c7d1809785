// A step as one bar of its parts, with the numbers under it.
import type { BreakdownPart } from "../contract.ts";
import { h, percent } from "../ui/dom.ts";
import { share } from "../ui/format.ts";

export function partsBar(parts: readonly BreakdownPart[]): HTMLElement {
  const bar = h("div", {
    class: "parts", role: "img", "aria-label": parts.map((part) => `${part.part} ${part.text}, ${share(part.share)}`).join("; "),
  });
  for (const part of parts) {
    const piece = h("span", { class: `part ${part.part}`, title: `${part.part} ${part.text}, ${share(part.share)}` });
    percent(piece, "width", part.share);
    bar.append(piece);
  }
  return bar;
}

export function partsKey(parts: readonly BreakdownPart[], least = 0.005): HTMLElement {
  return h("div", { class: "parts-key", "aria-hidden": "true" }, ...parts.filter((part) => part.share >= least).map((part) =>
    h("span", {}, h("i", { class: `swatch part ${part.part}` }), `${part.part} ${share(part.share)}`)));
}

/** The time at work and the time waiting, as a bar. */
export function spentBar(spent: { readonly busy: number; readonly waiting: number }): HTMLElement {
  const busy = h("span", { class: "busy" });
  const waiting = h("span", { class: "waiting" });
  percent(busy, "width", spent.busy);
  percent(waiting, "width", spent.waiting);
  return h("span", { class: "busy-cell", "aria-hidden": "true" }, busy, waiting);
}
