// What would be if: the changes tried on a plan, the server's answer in its words, and what to do with it.
import type { Change, WhatIf } from "../contract.ts";
import { h, refill } from "../ui/dom.ts";
import { changeWords } from "./steps.ts";

const MOST_CHIPS = 12;

export interface WhatIfActs {
  readonly drop: (index: number) => void;
  readonly keep: () => void;
  readonly replan: () => void;
  readonly longer: () => void;
  readonly discard: () => void;
}

export class WhatIfBar {
  readonly element = h("section", { class: "whatif card", testid: "whatif", "aria-label": "What if", "aria-live": "polite" });
  private readonly keep: HTMLButtonElement;
  private readonly replan: HTMLButtonElement;
  private readonly longer: HTMLButtonElement;

  constructor(private readonly acts: WhatIfActs) {
    this.keep = h("button", { type: "button", class: "button", testid: "keep-button", on: { click: acts.keep } }, "Keep as it is");
    this.replan = h("button", { type: "button", class: "button primary", testid: "replan-button", on: { click: acts.replan } }, "Plan again");
    this.longer = h("button", { type: "button", class: "button", testid: "replan-longer", title: "Jobs that lost nothing may change, too", on: { click: acts.longer } }, "Look longer");
    this.element.hidden = true;
  }

  show(changes: readonly Change[], answer: WhatIf | null): void {
    this.element.hidden = changes.length === 0;
    document.body.classList.toggle("with-whatif", changes.length > 0);
    if (changes.length === 0) return;
    refill(this.element,
      h("div", { class: "whatif-head" }, h("h3", {}, "What if"),
        h("ul", { class: "chips" }, ...changes.slice(0, MOST_CHIPS).map((change, index) => h("li", { class: "chip", testid: "change" }, changeWords(change),
          h("button", { type: "button", "aria-label": `Take back: ${changeWords(change)}`, on: { click: () => this.acts.drop(index) } }, "×"))),
          changes.length > MOST_CHIPS ? h("li", { class: "chip" }, `and ${changes.length - MOST_CHIPS} more`) : null),
        h("div", { class: "group grow" },
          h("button", { type: "button", class: "button quiet", testid: "discard-button", on: { click: this.acts.discard } }, "Discard"), this.keep, this.longer, this.replan)),
      h("ul", { class: "whatif-lines", testid: "whatif-lines" },
        ...(answer ? answer.lines.map((line) => h("li", {}, line)) : [h("li", {}, "…")])));
  }

  busy(busy: boolean): void {
    this.keep.disabled = this.replan.disabled = this.longer.disabled = busy;
  }
}
