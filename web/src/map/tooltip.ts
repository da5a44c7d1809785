// A small note beside what the pointer or the focus is on.
import { h } from "../ui/dom.ts";

export class Tooltip {
  readonly element = h("div", { class: "tooltip", "aria-hidden": "true" });

  /** Lines are split at line breaks; the first is strong. */
  show(text: string, x: number, y: number, width: number): void {
    const [first, ...rest] = text.split("\n");
    this.element.replaceChildren(h("strong", {}, first ?? ""), ...rest.map((line) => h("span", {}, line)));
    this.element.classList.add("shown");
    const own = this.element.offsetWidth;
    const left = Math.max(4, Math.min(width - own - 4, x - own / 2));
    const above = y - this.element.offsetHeight - 8;
    this.element.style.transform = `translate(${left}px, ${above < 4 ? y + 24 : above}px)`;
  }

  hide(): void {
    this.element.classList.remove("shown");
  }
}
