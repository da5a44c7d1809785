// One card for every job: how long a step takes and where the time goes. Also where a dragged machine is dropped.
import type { HulkDocument, WhatIf } from "../contract.ts";
import { badge } from "../ui/badge.ts";
import { h, refillKeepingFocus } from "../ui/dom.ts";
import { count, money, plural, seconds } from "../ui/format.ts";
import { markOf, type Marks } from "../ui/palette.ts";
import { whyNot } from "./cut.ts";
import { partsBar } from "./parts.ts";

export interface CardsInput {
  readonly document: HulkDocument;
  /** Whose the machines are, and which are lost, in a what-if. */
  readonly owner: readonly number[];
  readonly lost: ReadonlySet<string>;
  readonly marks: Marks;
  readonly chosen: string | null;
  readonly whatif: WhatIf | null;
}

export class JobCards {
  readonly element = h("div", { class: "jobs", testid: "jobs" });

  constructor(private readonly onJob: (job: string) => void) {}

  show(input: CardsInput): void {
    const { document, owner, lost, whatif } = input;
    const machines = (of: number): number => document.cluster.machines.filter(({ name }, index) => (owner[index] ?? -1) === of && !lost.has(name)).length;
    const cards = document.jobs.map(({ name }, index) => this.card(input, name, machines(index)));
    const idle = (whatif ?? document.words).idle ?? "";
    const idleCard = h("div", { class: "card idle-card", testid: "job", "data-job": "", "data-drop-job": "" },
      h("strong", {}, `${plural(machines(-1), "machine")} idle`), h("span", { title: idle }, idle));
    refillKeepingFocus(this.element, ...cards, idleCard);
  }

  private card({ document, marks, chosen, whatif }: CardsInput, name: string, machines: number): HTMLElement {
    const words = document.words.jobs[name];
    const title = h("button", {
      type: "button", class: "job-name", testid: "job-name", "data-job": name, "aria-pressed": String(chosen === name), title: "Show this job alone, and its words",
      on: { click: () => this.onJob(name) },
    }, badge(markOf(marks, name)), h("span", {}, name));
    const card = h("article", {
      class: `card job-card${chosen === name ? " chosen" : ""}`, testid: "job", "data-job": name, "data-drop-job": name,
    }, title);
    if (!words) {
      card.append(whyNot(document, name));
      return card;
    }
    const price = document.price.jobs[name];
    const step = price?.step_s ?? null;
    const cost = price?.money_per_step?.total ?? null;
    card.append(
      h("p", { class: "job-step" }, h("strong", {}, step === null ? "–" : seconds(step)), this.change(whatif, name) ?? h("span", { class: "soft" }, "a step")),
      partsBar(words.step),
      h("p", { class: "job-facts" },
        price?.tokens_per_s ? h("span", {}, `${count(price.tokens_per_s)} tokens/s`) : null,
        cost === null ? null : h("span", {}, `${money(cost)} a step`),
        h("span", {}, plural(machines, "machine"))));
    return card;
  }

  /** What a what-if would make of the step; as the server says it. */
  private change(whatif: WhatIf | null, job: string): HTMLElement | null {
    const answer = whatif?.jobs[job];
    if (!whatif?.changed || !answer) return null;
    const { before, after } = answer;
    if (after === null) return h("span", { class: "change worse" }, answer.how || "stops");
    if (before === null || Math.abs(after - before) <= 1e-9 * before) return null;
    return h("span", { class: `change ${after > before ? "worse" : "better"}`, title: answer.reason }, `→ ${seconds(after)}`);
  }
}
