// The controls above the page: what to plan on, what to train, and the buttons.
import type { Catalogue, PlanOptions } from "../contract.ts";
import { h, icon, refill } from "../ui/dom.ts";

export interface WorkbenchActs {
  readonly choose: () => void;
  readonly edit: (what: "cluster" | "jobs") => void;
  readonly plan: () => void;
  readonly cancel: () => void;
  readonly undo: () => void;
  readonly redo: () => void;
  readonly join: () => void;
  readonly openPlan: (text: string) => void;
}

export const OWN = "\u0000own"; // the value of "your own" in a select; no file can have this name

const PENCIL = "M4 20l1-4L16 5l3 3L8 19z";

export class Workbench {
  readonly element: HTMLElement;
  readonly progress = h("p", { class: "progress", testid: "progress", role: "status" });
  private readonly clusters = h("select", { class: "select", id: "cluster-select", testid: "cluster-select" });
  private readonly jobs = h("select", { class: "select", id: "jobs-select", testid: "jobs-select" });
  private readonly seconds = h("select", { class: "select", testid: "seconds-select", "aria-label": "Most time for planning" });
  private readonly cheapest = h("input", { type: "checkbox", testid: "cheapest" });
  private readonly planButton = h("button", { type: "button", class: "button primary", testid: "plan-button" }, "Plan");
  private readonly cancelButton = h("button", { type: "button", class: "button", testid: "cancel-button" }, "Cancel");
  private readonly undoButton: HTMLButtonElement;
  private readonly redoButton: HTMLButtonElement;
  private readonly joinButton: HTMLButtonElement;

  constructor(catalogue: Catalogue, acts: WorkbenchActs) {
    refill(this.clusters, ...catalogue.clusters.map((one) => h("option", { value: one.name, title: one.about }, one.name)));
    refill(this.jobs, ...catalogue.jobs.map((one) => h("option", { value: one.name, title: `${one.about} ${one.jobs.join(", ")}` }, one.name)));
    const times = [1, 2, 5, 10, 30, 60].filter((time) => time <= catalogue.limits.seconds);
    refill(this.seconds, ...times.map((time) => h("option", { value: String(time) }, `${time} s`)));
    this.seconds.value = String(times.includes(5) ? 5 : times[times.length - 1] ?? 1);
    const tool = (name: string, testid: string, path: string, act: () => void): HTMLButtonElement =>
      h("button", { type: "button", class: "button icon-button", testid, "aria-label": name, title: name, on: { click: act } }, icon(path));
    this.undoButton = tool("Undo", "undo-button", "M9 14L4 9l5-5M4 9h10a6 6 0 0 1 0 12h-3", acts.undo);
    this.redoButton = tool("Redo", "redo-button", "M15 14l5-5-5-5M20 9H10a6 6 0 0 0 0 12h3", acts.redo);
    this.joinButton = h("button", { type: "button", class: "button", testid: "join-button", on: { click: acts.join } }, "Add machines…");
    this.clusters.addEventListener("change", acts.choose);
    this.jobs.addEventListener("change", acts.choose);
    this.planButton.addEventListener("click", acts.plan);
    this.cancelButton.addEventListener("click", acts.cancel);
    const opened = h("input", { type: "file", class: "offscreen", accept: ".json", testid: "open-plan-file", tabindex: "-1", "aria-label": "Plan file to open" });
    opened.addEventListener("change", async () => {
      const chosen = opened.files?.[0];
      if (chosen) acts.openPlan(await chosen.text());
      opened.value = "";
    });
    this.element = h("div", { class: "card workbench", testid: "workbench", role: "group", "aria-label": "What to plan" },
      h("div", { class: "group" }, h("label", { class: "label", for: "cluster-select" }, "Machines"), this.clusters,
        tool("Edit the machines", "edit-cluster", PENCIL, () => acts.edit("cluster"))),
      h("div", { class: "group" }, h("label", { class: "label", for: "jobs-select" }, "Jobs"), this.jobs,
        tool("Edit the jobs", "edit-jobs", PENCIL, () => acts.edit("jobs"))),
      h("div", { class: "group" }, h("label", { class: "check" }, this.cheapest, "cheapest"), h("span", { class: "label" }, "at most"), this.seconds,
        this.planButton, this.cancelButton),
      h("div", { class: "group grow" }, this.undoButton, this.redoButton, this.joinButton,
        h("button", { type: "button", class: "button", testid: "open-plan", on: { click: () => opened.click() } }, "Open plan…"), opened));
    this.busy(false);
    this.steps(false, false, false);
  }

  get cluster(): string {
    return this.clusters.value;
  }

  get jobsFile(): string {
    return this.jobs.value;
  }

  get options(): PlanOptions {
    return { seconds: Number(this.seconds.value), cheapest: this.cheapest.checked };
  }

  choose(cluster: string, jobs: string): void {
    this.clusters.value = cluster;
    this.jobs.value = jobs;
  }

  /** Adds, or chooses, the entry for a text of one's own. */
  own(what: "cluster" | "jobs", name: string): void {
    const select = what === "cluster" ? this.clusters : this.jobs;
    let option = [...select.options].find((one) => one.value === OWN);
    if (!option) {
      option = h("option", { value: OWN });
      select.append(option);
    }
    option.textContent = name;
    select.value = OWN;
  }

  busy(busy: boolean): void {
    this.planButton.disabled = busy;
    // Kept in its place, so that nothing moves when it comes and goes.
    this.cancelButton.disabled = !busy;
  }

  steps(undo: boolean, redo: boolean, planned: boolean): void {
    this.undoButton.disabled = !undo;
    this.redoButton.disabled = !redo;
    this.joinButton.disabled = !planned;
  }
}
