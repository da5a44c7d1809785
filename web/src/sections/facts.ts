// The panel beside the map: all that is known of what was clicked.
import type { ClusterView, HulkDocument, JobWords, LinkView, LiveStage, MachineView } from "../contract.ts";
import { partsOf } from "../parts.ts";
import { linkId } from "../map/from_document.ts";
import type { Pick } from "../map/scene.ts";
import { badge } from "../ui/badge.ts";
import { h, percent, refillKeepingFocus as refill, type Child } from "../ui/dom.ts";
import { bandwidth, bytes, count, money, plural, range, seconds, share } from "../ui/format.ts";
import { markOf, type Marks } from "../ui/palette.ts";
import { stageKey } from "../timeline/model.ts";
import { partsBar, partsKey, spentBar } from "./parts.ts";

type Fact = readonly [string, Child] | null | undefined | false | "";

export function factList(facts: readonly Fact[]): HTMLElement {
  const known = facts.filter((fact): fact is readonly [string, Child] => Boolean(fact));
  return h("dl", { class: "fact-list" }, ...known.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

export function bar(value: number, tight = false): HTMLElement {
  const inside = h("span");
  percent(inside, "width", value);
  return h("span", { class: `bar${tight ? " tight" : ""}`, "aria-hidden": "true" }, inside);
}

export interface FactsInput {
  readonly cluster: ClusterView;
  readonly document: HulkDocument | null;
  readonly owner: readonly number[];
  readonly marks: Marks;
  readonly pick: Pick | null;
  /** Machines that are lost in a what-if. */
  readonly lost: ReadonlySet<string>;
  /** How stages spend their time, by `stageKey`, while a run is watched. */
  readonly measured: ReadonlyMap<string, LiveStage>;
  /** The idle machines in words. */
  readonly idle: string | null;
  /** Buttons for a machine, a region or a link, where the page may change things. */
  readonly actions: (pick: Pick) => HTMLElement | null;
  readonly onPick: (pick: Pick) => void;
}

export class Facts {
  readonly element = h("aside", { class: "card facts", testid: "facts", "aria-label": "Facts", "aria-live": "polite", tabindex: "0" });

  show(input: FactsInput): void {
    const { pick } = input;
    if (pick?.kind === "machine") {
      const index = input.cluster.machines.findIndex((machine) => machine.name === pick.name);
      const machine = input.cluster.machines[index];
      if (machine) return refill(this.element, ...machineFacts(input, machine, index, input.actions(pick)));
    }
    if (pick?.kind === "link") {
      const link = input.cluster.links.find((one) => linkId(one.a, one.b) === pick.id);
      if (link) return refill(this.element, ...linkFacts(input, link, input.actions(pick)));
    }
    const words = pick?.kind === "job" ? input.document?.words.jobs[pick.name] : undefined;
    if (pick?.kind === "job") return refill(this.element, ...jobFacts(input, pick.name, words));
    if (pick?.kind === "region") return refill(this.element, ...regionFacts(input, pick.name, input.actions(pick)));
    refill(this.element, ...overview(input));
  }
}

function machineFacts(input: FactsInput, machine: MachineView, index: number, actions: HTMLElement | null): Child[] {
  const lost = input.lost.has(machine.name);
  const job = lost ? null : input.document?.jobs[input.owner[index] ?? -1]?.name ?? null;
  const mark = markOf(input.marks, job);
  // A what-if has no cut of its own: stages are those of the plan, and a lost machine has none any more.
  const moved = !lost && (input.document?.owner[index] ?? -1) !== (input.owner[index] ?? -1);
  const stages = Object.entries(lost ? {} : input.document?.cut ?? {}).flatMap(([name, cut]) => cut.pipelines.flatMap((pipeline, p) =>
    pipeline.stages.map((stage, s) => ({ name, p, s, stage })).filter(({ stage }) => partsOf(stage).some((part) => part.machine === machine.name))));
  return [
    h("h2", {}, job ? badge(mark) : null, machine.name),
    factList([
      ["job", lost ? "none: it is lost" : job ?? "idle"],
      ["region", machine.region],
      ["GPUs", `${machine.gpus}×${machine.gpu}`],
      ["memory", `${bytes(machine.memory)} a GPU`],
      ["network", bandwidth(machine.network)],
      ["price", `${money(machine.price * 3600)} an hour`],
    ]),
    actions,
    moved && stages.length > 0 && h("p", { class: "soft small" }, "Its stages in the plan, before this what-if:"),
    ...stages.slice(0, 12).map(({ name, p, s, stage }) => {
      const used = stage.memory_used === null ? null : stage.memory_used / stage.memory;
      const measured = input.measured.get(stageKey(name, p, s));
      return h("div", {},
        h("h3", {}, `${name}, pipeline ${p + 1}, stage ${s + 1}`),
        factList([
          ["layers", range(stage.first, stage.last)],
          ["GPUs", partsOf(stage).find((part) => part.machine === machine.name)?.gpus.join(", ") ?? ""],
          stage.memory_used !== null && ["memory", h("span", {}, `${bytes(stage.memory_used)} of ${bytes(stage.memory)}`, bar(used ?? 0, (used ?? 0) > 0.95))],
          measured && ["measured", h("span", {}, `at work ${share(measured.busy)}, waiting ${share(measured.waiting)}`, spentBar(measured))],
          stage.busy !== null && [measured ? "predicted" : "at work", h("span", {}, share(stage.busy), bar(stage.busy))],
          stage.forward !== null && stage.backward !== null && ["microbatch", `${seconds(stage.forward)} forward, ${seconds(stage.backward)} backward`],
        ]));
    }),
    stages.length > 12 ? h("p", { class: "soft small" }, `and ${stages.length - 12} stages more`) : null,
    lost ? null : peers(input, index),
  ];
}

/** Whom a machine sends most to, by the document's list of the heaviest pairs. */
function peers(input: FactsInput, index: number): Child {
  const pairs = input.document?.traffic.pairs;
  if (!pairs) return null;
  const found = pairs.bytes.map((sent, at) => ({ sent, other: pairs.a[at] === index ? pairs.b[at] : pairs.b[at] === index ? pairs.a[at] : undefined }))
    .filter(({ other }) => other !== undefined).sort((a, b) => b.sent - a.sent).slice(0, 6);
  if (found.length === 0) return null;
  return h("div", {}, h("h3", {}, "Bytes a step with"), factList(found.map(({ sent, other }) =>
    [input.cluster.machines[other!]?.name ?? "", bytes(sent)])));
}

function linkFacts(input: FactsInput, link: LinkView, actions: HTMLElement | null): Child[] {
  const rows = (input.document?.traffic.links ?? []).filter((row) => linkId(row.a, row.b) === linkId(link.a, link.b));
  return [
    h("h2", {}, `${link.a} – ${link.b}`),
    factList([
      link.origin === "blocked" ? ["state", "blocked: nothing passes"] : ["latency", `${link.latency === null ? "–" : seconds(link.latency)} one way, ${link.origin}`],
      link.origin !== "blocked" && ["bandwidth", `${bandwidth(link.bandwidth)} a flow, ${link.bandwidth_origin}`],
      link.trunk !== null && ["trunk", `${bandwidth(link.trunk)} for all flows together`],
    ]),
    actions,
    ...rows.map((row) => h("div", {}, h("h3", { class: "with-badge" }, badge(markOf(input.marks, row.job)), row.job), factList([
      ["activations", `${bytes(row.messages)} a step`],
      ["sums", `${bytes(row.sums)} a step`],
      row.cost !== null && ["costs", h("span", {}, `${share(row.cost)} of the step`, bar(row.cost))],
    ]))),
    rows.length === 0 ? h("p", { class: "soft small" }, "No job of this plan uses it.") : null,
  ];
}

function regionFacts(input: FactsInput, name: string, actions: HTMLElement | null): Child[] {
  const region = input.cluster.regions.find((one) => one.name === name);
  const machines = input.cluster.machines.map((machine, index) => ({ machine, index })).filter(({ machine }) => machine.region === name);
  const gpus = machines.reduce((sum, { machine }) => sum + machine.gpus, 0);
  const shown = machines.slice(0, 60);
  return [
    h("h2", {}, region?.label || name),
    factList([
      ["machines", String(machines.length)],
      ["GPUs", String(gpus)],
      region !== undefined && region.egress > 0 && ["egress", `${money(region.egress * 1e9)} a GB`],
    ]),
    actions,
    h("ul", { class: "button-list" }, ...shown.map(({ machine, index }) => {
      const lost = input.lost.has(machine.name);
      const job = input.document?.jobs[input.owner[index] ?? -1]?.name ?? null;
      return h("li", {}, h("button", { type: "button", class: "button quiet", on: { click: () => input.onPick({ kind: "machine", name: machine.name }) } },
        job ? badge(markOf(input.marks, job)) : null, machine.name, h("span", { class: "soft" }, `${machine.gpus}×${machine.gpu}${lost ? ", lost" : ""}`)));
    })),
    machines.length > shown.length ? h("p", { class: "soft small" }, `and ${machines.length - shown.length} more, in the table of machines`) : null,
  ];
}

function jobFacts(input: FactsInput, name: string, words: JobWords | undefined): Child[] {
  const job = input.document?.jobs.find((one) => one.name === name);
  const reason = input.document?.words.cannot_run[name] ?? input.document?.words.waiting[name];
  return [
    h("h2", {}, badge(markOf(input.marks, name)), name),
    words ? h("p", {}, words.headline) : h("p", { class: "refused" }, reason ?? ""),
    words ? h("div", {}, partsBar(words.step), partsKey(words.step)) : null,
    factList([
      words && ["bottleneck", h("strong", {}, words.bottleneck)],
      words && ["memory", words.memory],
      words && ["cost", words.cost],
      words?.deadline && ["deadline", words.deadline],
      words?.sharing && ["sharing", words.sharing],
      words && ["plan", words.plan],
      job && ["model", `${job.model}, ${count(job.parameters)} parameters, ${plural(job.layers, "layer")}`],
      job && ["batch", `${job.global_batch.toLocaleString("en-US")} sequences of ${job.sequence.toLocaleString("en-US")} tokens, ${job.precision}, ${job.optimizer}`],
    ]),
    words?.would_help && words.would_help.length > 0
      ? h("div", {}, h("h3", {}, "Would help"), h("ul", { class: "plain-list" }, ...words.would_help.map((help) => h("li", {}, help)))) : null,
  ];
}

/** What holds up each job, in one sentence each. */
function bottlenecks(input: FactsInput, document: HulkDocument): Child {
  const rows = Object.entries(document.words.jobs);
  return rows.length === 0 ? null : h("div", {}, h("h3", {}, "Bottlenecks"), h("ul", { class: "bottlenecks" }, ...rows.map(([name, words]) =>
    h("li", {}, badge(markOf(input.marks, name)), h("span", {}, words.bottleneck)))));
}

/** A long text in a few lines, with a button for the rest. */
function clamped(text: string): HTMLElement {
  const body = h("p", { class: "small clamped" }, text);
  if (text.length < 260) return body;
  const button = h("button", { type: "button", class: "button quiet more-button" }, "Read all");
  button.addEventListener("click", () => {
    body.classList.remove("clamped");
    button.remove();
  });
  return h("div", {}, body, button);
}

function overview(input: FactsInput): Child[] {
  const { cluster, document } = input;
  const gpus = cluster.machines.reduce((sum, machine) => sum + machine.gpus, 0);
  const notes = document?.words.notes ?? [];
  return [
    document?.replan ? h("div", { testid: "replan-lines" }, h("h2", {}, "What changes"),
      h("ul", { class: "replan-lines" }, ...document.replan.lines.map((line) => h("li", {}, line)))) : null,
    h("h2", {}, cluster.name),
    cluster.about ? clamped(cluster.about) : null,
    factList([
      ["machines", String(cluster.machines.length)],
      ["GPUs", String(gpus)],
      ["regions", String(cluster.regions.length)],
      input.idle ? ["idle", clamped(input.idle)] : null,
    ]),
    ...(document ? [bottlenecks(input, document)] : []),
    notes.length > 0 ? h("ul", { class: "plain-list" }, ...notes.map((note) => h("li", {}, note))) : null,
    h("p", { class: "soft small" }, "Choose a machine, a region or a link on the map to see its facts."),
  ];
}
