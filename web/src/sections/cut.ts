// How every job is cut: pipelines as rows, stages as blocks, and the terminal's words beside them.
import type { HulkDocument, JobWords, PipelineView, StageView } from "../contract.ts";
import { partsOf } from "../parts.ts";
import { badge } from "../ui/badge.ts";
import { h, refill, type Child } from "../ui/dom.ts";
import { bytes, plural, range, seconds, share } from "../ui/format.ts";
import { markOf, type JobMark, type Marks } from "../ui/palette.ts";
import { bar } from "./facts.ts";
import { partsBar, partsKey } from "./parts.ts";

const FIRST = 6; // pipelines shown before a button asks for more

export class Cut {
  readonly element = h("div", { class: "cut", testid: "cut" });

  show(document: HulkDocument, marks: Marks, onMachine: (name: string) => void): void {
    const blocks = document.jobs.map(({ name }) => {
      const words = document.words.jobs[name];
      const cut = document.cut[name]?.pipelines ?? [];
      return h("article", { class: "card cut-job", testid: "cut-job", "data-job": name, "aria-label": name },
        h("header", {}, h("h3", {}, badge(markOf(marks, name)), name), words && h("span", { class: "soft" }, words.headline)),
        words ? wordsList(name, words) : whyNot(document, name),
        cut.length > 0 && pipelines(cut, markOf(marks, name), onMachine));
    });
    refill(this.element, ...blocks);
  }
}

/** That a job cannot run as it is cut, or waits for a place, and why. */
export function whyNot(document: HulkDocument, job: string): HTMLElement {
  const reason = document.words.cannot_run[job] ?? document.words.waiting[job] ?? "";
  return h("p", { class: "refused", title: reason }, h("b", {}, job in document.words.cannot_run ? "cannot run" : "waits"), reason && `: ${reason}`);
}

function wordsList(job: string, words: JobWords): HTMLElement {
  const line = (name: string, ...value: Child[]): Child[] => [h("dt", {}, name), h("dd", {}, ...value)];
  const helps = words.would_help;
  return h("dl", { class: "words-grid", testid: "words", "data-job": job },
    ...line("plan", words.plan),
    ...line("step", partsBar(words.step), partsKey(words.step, 0)),
    ...(words.sharing ? line("sharing", words.sharing) : []),
    ...line("memory", words.memory),
    ...line("cost", words.cost),
    ...(words.deadline ? line("deadline", words.deadline) : []),
    ...line("bottleneck", h("strong", {}, words.bottleneck)),
    ...(helps && helps.length > 0 ? line("would help", ...helps.map((help) => h("p", {}, help))) : []));
}

/** The first of every kind with the number of those like it, then the rest on demand. */
function pipelines(all: readonly PipelineView[], mark: JobMark, onMachine: (name: string) => void): HTMLElement {
  const facts = h("p", { class: "stage-line", "aria-live": "polite" }, "Point at a stage for its times and memory.");
  const say = (text: string): void => {
    facts.textContent = text;
  };
  const kinds = all.map((pipeline, index) => ({ pipeline, index })).filter(({ pipeline, index }) => pipeline.like === index);
  const box = h("div", { class: "pipelines" });
  const row = (pipeline: PipelineView, index: number, more: number): HTMLElement => h("section", { class: "pipeline", "data-pipeline": index },
    h("h4", {}, `Pipeline ${index + 1}${more > 0 ? ` and ${more} more like it` : ""}, ${plural(pipeline.microbatches, "microbatch", "microbatches")}${more > 0 ? " each" : ""}`),
    h("div", { class: "stages" }, ...byRegion(pipeline.stages).map(({ region, stages }) => h("div", { class: "stage-region" },
      h("span", {}, region), h("div", {}, ...stages.map(({ stage, index: at }) => block(stage, at, mark, say, onMachine)))))));
  const draw = (whole: boolean): void => {
    const rows = whole ? all.map((pipeline, index) => row(pipeline, index, 0))
      : kinds.slice(0, FIRST).map(({ pipeline, index }) => row(pipeline, index, all.filter((other) => other.like === index).length - 1));
    const hidden = all.length - rows.length;
    refill(box, ...rows, hidden > 0 && h("button", {
      type: "button", class: "button cut-more", on: { click: () => draw(true) },
    }, `Show all ${all.length} pipelines`));
  };
  draw(false);
  return h("div", { class: "pipeline" }, box, facts);
}

/** Neighbouring stages of one region stand under one name. */
function byRegion(stages: readonly StageView[]): { region: string; stages: { stage: StageView; index: number }[] }[] {
  const groups: { region: string; stages: { stage: StageView; index: number }[] }[] = [];
  stages.forEach((stage, index) => {
    const last = groups[groups.length - 1];
    if (last && last.region === stage.region) last.stages.push({ stage, index });
    else groups.push({ region: stage.region, stages: [{ stage, index }] });
  });
  return groups;
}

function stageWords(stage: StageView, index: number): string {
  const places = partsOf(stage).map((part) => `${part.machine}, ${part.gpus.length}×${stage.gpu} (GPU ${part.gpus.join(", ")})`);
  const parts = [`Stage ${index + 1} on ${places.join(" and ")}, layers ${range(stage.first, stage.last)}`];
  if (stage.memory_used !== null) parts.push(`${bytes(stage.memory_used)} of ${bytes(stage.memory)} a GPU`);
  if (stage.memory_parts) {
    const largest = Object.entries(stage.memory_parts).filter(([, size]) => size > 0).sort((a, b) => b[1] - a[1]);
    parts.push(largest.map(([name, size]) => `${name} ${bytes(size)}`).join(", "));
  }
  if (stage.forward !== null && stage.backward !== null) parts.push(`${seconds(stage.forward)} forward and ${seconds(stage.backward)} backward a microbatch`);
  if (stage.send !== null && stage.send > 0) parts.push(`${seconds(stage.send)} to send on`);
  if (stage.busy !== null) parts.push(`at work ${share(stage.busy)} of the step`);
  return parts.join("; ");
}

function block(stage: StageView, index: number, mark: JobMark, say: (text: string) => void, onMachine: (name: string) => void): HTMLElement {
  const words = stageWords(stage, index);
  const places = partsOf(stage), more = places.length - 1;
  const used = stage.memory_used === null ? 0 : stage.memory_used / stage.memory;
  const element = h("button", {
    type: "button", class: "stage", testid: "stage", "data-machine-name": stage.machine, title: words,
    on: { click: () => onMachine(stage.machine), pointerenter: () => say(words), focus: () => say(words) },
  }, h("b", {}, more > 0 ? `${stage.machine} +${more}` : stage.machine),
  h("span", {}, `${places.reduce((sum, part) => sum + part.gpus.length, 0)}×${stage.gpu}`),
  h("span", {}, `${stage.first === stage.last ? "layer" : "layers"} ${range(stage.first, stage.last)}`), bar(used, used > 0.95));
  element.style.setProperty("--job", mark.colour);
  return element;
}
