// What a person can do to a machine, a region or a link: the buttons under its facts.
import type { Change, HulkDocument } from "../contract.ts";
import type { Pick } from "../map/scene.ts";
import { h } from "../ui/dom.ts";
import { plural } from "../ui/format.ts";

const MOST_CHANGES = 200;
const SPEEDS = [["0.5", "half as fast"], ["0.1", "a tenth as fast"], ["2", "twice as fast"], ["10", "ten times as fast"], ["blocked", "blocked"]] as const;

export function actionsFor(pick: Pick, document: HulkDocument, owner: readonly number[], lost: ReadonlySet<string>, change: (...more: Change[]) => void): HTMLElement | null {
  if (pick.kind === "machine") return machineActions(pick.name, document, owner, lost, change);
  if (pick.kind === "region") return regionActions(pick.name, document, lost, change);
  return pick.kind === "link" ? linkActions(pick.id, change) : null;
}

function machineActions(name: string, document: HulkDocument, owner: readonly number[], lost: ReadonlySet<string>, change: (...more: Change[]) => void): HTMLElement {
  if (lost.has(name)) return h("p", { class: "soft small" }, "Lost in this what-if.");
  const index = document.cluster.machines.findIndex((machine) => machine.name === name);
  const now = document.jobs[owner[index] ?? -1]?.name ?? "";
  const select = h("select", { class: "select", testid: "move-select", id: "move-select" },
    h("option", { value: "" }, "idle"), ...document.jobs.map((job) => h("option", { value: job.name }, job.name)));
  select.value = now;
  select.addEventListener("change", () => change({ kind: "move", machine: name, job: select.value || null }));
  return h("div", { class: "facts-actions" },
    h("div", { class: "group" }, h("label", { class: "label", for: "move-select" }, "Give it to"), select),
    h("button", { type: "button", class: "button danger", testid: "lose-button", on: { click: () => change({ kind: "lose", machine: name }) } }, "What if it is lost?"));
}

function regionActions(name: string, document: HulkDocument, lost: ReadonlySet<string>, change: (...more: Change[]) => void): HTMLElement | null {
  const left = document.cluster.machines.filter((machine) => machine.region === name && !lost.has(machine.name));
  if (left.length === 0) return h("p", { class: "soft small" }, "Lost in this what-if.");
  // All of a cluster cannot be lost, and the server takes so many changes at once.
  if (left.length + lost.size > Math.min(MOST_CHANGES, document.cluster.machines.length - 1)) return null;
  return h("div", { class: "facts-actions" },
    h("button", { type: "button", class: "button danger", testid: "lose-region-button", on: { click: () => change(...left.map(({ name: machine }): Change => ({ kind: "lose", machine }))) } },
      left.length === 1 ? "What if it is lost?" : `What if all ${plural(left.length, "machine")} are lost?`));
}

function linkActions(id: string, change: (...more: Change[]) => void): HTMLElement {
  const [a = "", b = ""] = id.split("\n");
  const select = h("select", { class: "select", testid: "slow-select", "aria-label": "How fast the link would be" },
    ...SPEEDS.map(([value, name]) => h("option", { value }, name)));
  const setting = h("input", { class: "field", type: "text", testid: "link-setting", "aria-label": "Bandwidth and latency of the link", placeholder: "bandwidth=1 Gbit/s latency=90 ms" });
  const form = h("form", { class: "group" }, setting, h("button", { type: "submit", class: "button", testid: "link-set-button" }, "Set"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (setting.value.trim()) change({ kind: "link", a, b, setting: setting.value.trim() });
  });
  const slow = (): void => change(select.value === "blocked" ? { kind: "link", a, b, setting: "blocked=true" } : { kind: "link", a, b, factor: Number(select.value) });
  return h("div", { class: "facts-actions" },
    h("div", { class: "group" }, h("span", { class: "label" }, "What if it were"), select,
      h("button", { type: "button", class: "button", testid: "slow-button", on: { click: slow } }, "Try")), form);
}
