// The letter of a job in its colour.
import { h } from "./dom.ts";
import type { JobMark } from "./palette.ts";

export function badge(mark: JobMark): HTMLElement {
  const element = h("span", { class: "badge", "aria-hidden": "true" }, mark.letter);
  element.style.background = mark.colour;
  element.style.color = mark.ink;
  return element;
}
