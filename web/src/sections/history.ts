// All plans that the server keeps, newest first.
import type { PlanEntry } from "../contract.ts";
import { h, refill } from "../ui/dom.ts";
import { seconds, when } from "../ui/format.ts";
import { table } from "../ui/table.ts";

export class History {
  readonly element = h("div", { testid: "history" });

  show(plans: readonly PlanEntry[], current: string | null, open: (id: string) => void, forget: (id: string) => void): void {
    const steps = (entry: PlanEntry): string => Object.entries(entry.steps).map(([job, step]) => `${job} ${step === null ? "–" : seconds(step)}`).join(", ");
    refill(this.element, table<PlanEntry>({
      title: plans.length === 0 ? "No plan yet" : "Plans", testid: "history-table", rows: plans, first: 30, columns: [
        { name: "when", text: (entry) => when(entry.when), by: (entry) => entry.when },
        { name: "how", text: (entry) => entry.how },
        { name: "machines", text: (entry) => entry.cluster },
        { name: "a step", text: steps },
        { name: "", text: () => "", show: (entry) => h("span", { class: "group" },
          h("button", { type: "button", class: "button", testid: "history-open", "data-plan": entry.id, disabled: entry.id === current, on: { click: () => open(entry.id) } }, entry.id === current ? "Shown" : "Open"),
          h("button", { type: "button", class: "button quiet danger", testid: "history-delete", "data-plan": entry.id, "aria-label": `Delete the plan of ${when(entry.when)}`, on: { click: () => forget(entry.id) } }, "Delete")) },
      ],
    }));
  }
}
