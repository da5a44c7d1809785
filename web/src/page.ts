// The page: one document drawn as map, cut, timeline, comparison and tables. What a server adds is given as `Extras`.
import type { Topology } from "topojson-specification";
import type { ClusterView, HulkDocument, LiveStage, WhatIf } from "./contract.ts";
import { legend } from "./map/legend.ts";
import { sceneOf } from "./map/from_document.ts";
import type { Pick, Spent } from "./map/scene.ts";
import { WorldMap } from "./map/view.ts";
import { Comparison } from "./sections/comparison.ts";
import { Cut } from "./sections/cut.ts";
import { Facts } from "./sections/facts.ts";
import { JobCards } from "./sections/jobs.ts";
import { Tables } from "./sections/tables.ts";
import { TimelineSection } from "./sections/timeline.ts";
import { statusLine } from "./ui/announce.ts";
import { h, refill, s, type Child } from "./ui/dom.ts";
import { marksOf, type Marks } from "./ui/palette.ts";
import { themeButton } from "./ui/theme.ts";

/** What a page with a server behind it can do more. */
export interface Extras {
  readonly actions: (pick: Pick) => HTMLElement | null;
  readonly onDrop: (machine: string, job: string | null) => void;
  readonly editable: () => boolean;
  /** Buttons that ask for what the document does not have yet. */
  readonly askTimeline: () => HTMLElement | null;
  readonly askComparison: () => HTMLElement | null;
}

export const READ_ONLY: Extras = {
  actions: () => null, onDrop: () => undefined, editable: () => false, askTimeline: () => null, askComparison: () => null,
};

export interface Overlay {
  readonly whatif: WhatIf | null;
  readonly lost: ReadonlySet<string>;
  readonly spent: ReadonlyMap<string, Spent>;
  /** Stages of running jobs by `stageKey`. */
  readonly measured?: ReadonlyMap<string, LiveStage>;
}

export const NO_OVERLAY: Overlay = { whatif: null, lost: new Set(), spent: new Map() };

const SECTIONS = [["map", "Map"], ["cut", "Cut"], ["timeline", "Timeline"], ["comparison", "Comparison"], ["tables", "Tables"]] as const;

export class Page {
  /** Places for what a server adds: controls above everything, then notes above the map, then sections at the end. */
  readonly controls = h("div", { class: "controls" });
  readonly notes = h("div", { class: "notes" });
  readonly tail = h("div", { class: "tail" });
  /** The line that says what happens. */
  readonly status = h("div", { class: "status" }, statusLine());
  readonly downloads = h("div", { class: "group" });
  private readonly what = h("p", { class: "what" });
  private readonly nav = h("nav", { "aria-label": "Parts of the page" });
  private readonly legendBox = h("div", { class: "legend-box" });
  private readonly jobs = new JobCards((job) => this.chooseJob(job));
  private readonly map: WorldMap;
  private readonly facts = new Facts();
  private readonly cut = new Cut();
  private readonly timeline = new TimelineSection();
  private readonly comparison = new Comparison();
  private readonly tables = new Tables();
  private readonly planned: HTMLElement[];
  private document: HulkDocument | null = null;
  private cluster: ClusterView | null = null;
  private marks: Marks = new Map();
  private pick: Pick | null = null;
  private job: string | null = null;
  private overlay: Overlay = NO_OVERLAY;
  private extras: Extras = READ_ONLY;
  /** Whether blocked links are drawn. */
  private blocked = true;

  constructor(root: HTMLElement, land: Topology) {
    this.map = new WorldMap({
      land, onPick: (pick) => this.choose(pick), onDrop: (machine, job) => this.extras.onDrop(machine, job), editable: () => this.extras.editable(),
    });
    const section = (id: string, title: string, lead: string, ...content: Child[]): HTMLElement =>
      h("section", { class: "section", id, "aria-labelledby": `${id}-title` },
        h("div", { class: "section-head" }, h("h2", { id: `${id}-title` }, title), h("p", { class: "lead" }, lead)), ...content);
    const mapSection = h("section", { class: "section", id: "map", "aria-label": "Map" },
      h("div", { class: "map-and-facts" }, h("div", { class: "card map-card" }, this.map.element, this.legendBox), h("div", { class: "facts-place" }, this.facts.element)));
    const tables = section("tables", "Tables", "Sort by a column's name; copy to a spreadsheet.", this.tables.element);
    this.planned = [
      section("cut", "The cut", "Every job's pipelines as rows, its stages as blocks; the bar is memory in use.", this.cut.element),
      section("timeline", "The timeline", "What every group of GPUs does in one step. Ctrl and wheel zoom, drag to move.", this.timeline.element),
      section("comparison", "The comparison", "Seconds of a step by each system.", this.comparison.element),
    ];
    refill(root,
      h("a", { class: "skip", href: "#map" }, "To the map"),
      h("header", { class: "topbar" },
        h("h1", { class: "wordmark" }, logo(), "Hulk"), this.what, this.nav,
        h("div", { class: "topbar-end" }, this.downloads, themeButton())),
      h("main", {}, this.controls, this.status, this.notes, this.jobs.element, mapSection, ...this.planned, tables, this.tail));
  }

  use(extras: Extras): void {
    this.extras = extras;
  }

  /** Draws a document, with a what-if or a running job laid over it. */
  show(document: HulkDocument, overlay: Overlay = NO_OVERLAY): void {
    const another = this.document !== document;
    this.document = document;
    this.cluster = document.cluster;
    this.overlay = overlay;
    if (another) this.marks = marksOf(document.jobs.map((job) => job.name));
    if (this.job !== null && !this.marks.has(this.job)) this.job = null;
    this.title(document.title, document.cluster.name, document.jobs.map((job) => job.name));
    this.drawMap();
    if (another) {
      this.cut.show(document, this.marks, (name) => this.choose({ kind: "machine", name }, true));
      this.timeline.show(document, this.marks, this.extras.askTimeline());
      this.comparison.show(document.comparison, this.marks, this.extras.askComparison());
    }
    if (overlay.measured) this.timeline.measure(overlay.measured);
    this.tables.show(document.cluster, document, this.owner, this.overlay.lost, this.marks, (pick) => this.choose(pick, true));
    for (const part of this.planned) part.hidden = false;
    refill(this.nav, ...SECTIONS.map(([id, name]) => h("a", { href: `#${id}` }, name)));
    window.document.documentElement.dataset["ready"] = document.saved?.id ?? "report";
  }

  /** Lays something over the document that is shown: only the map, the cards and marks change. */
  lay(overlay: Overlay): void {
    this.overlay = overlay;
    this.drawMap();
    if (overlay.measured) this.timeline.measure(overlay.measured);
  }

  /** Draws machines without a plan: what somebody is about to plan on. */
  preview(cluster: ClusterView, jobs: readonly string[]): void {
    this.document = null;
    this.cluster = cluster;
    this.overlay = NO_OVERLAY;
    this.marks = marksOf([]);
    this.job = null;
    this.pick = null;
    this.title(`${cluster.name} – Hulk`, cluster.name, jobs);
    this.drawMap();
    refill(this.jobs.element);
    this.tables.show(cluster, null, [], new Set(), this.marks, (pick) => this.choose(pick, true));
    for (const part of this.planned) part.hidden = true;
    refill(this.nav);
    window.document.documentElement.dataset["ready"] = "preview";
  }

  /** Nothing chosen: the panel tells of the whole. */
  rest(): void {
    this.choose(null);
  }

  private get owner(): readonly number[] {
    return this.overlay.whatif?.owner ?? this.document?.owner ?? [];
  }

  private title(title: string, cluster: string, jobs: readonly string[]): void {
    window.document.title = title.includes("Hulk") ? title : `${title} – Hulk`;
    refill(this.what, h("strong", {}, cluster), jobs.length > 0 ? ` · ${jobs.join(", ")}` : "");
  }

  private drawMap(): void {
    const { cluster, document } = this;
    if (!cluster) return;
    const scene = sceneOf({
      cluster, jobs: document?.jobs.map((job) => job.name) ?? [], owner: this.owner, cut: document?.cut ?? {},
      traffic: document?.traffic.links ?? [], lost: this.overlay.lost, spent: this.overlay.spent,
    });
    this.map.draw(scene, this.marks);
    refill(this.legendBox, legend(scene, this.marks, this.blocked, (shown) => {
      this.blocked = shown;
      this.map.element.classList.toggle("hide-blocked", !shown);
    }));
    this.map.highlight(this.job);
    this.map.choose(this.pick);
    this.drawFacts();
    if (document) this.drawJobs(document);
  }

  private drawJobs(document: HulkDocument): void {
    this.jobs.show({ document, owner: this.owner, lost: this.overlay.lost, marks: this.marks, chosen: this.job, whatif: this.overlay.whatif });
  }

  private drawFacts(): void {
    if (!this.cluster) return;
    this.facts.show({
      cluster: this.cluster, document: this.document, owner: this.owner, marks: this.marks, pick: this.pick, lost: this.overlay.lost,
      measured: this.overlay.measured ?? new Map(),
      idle: (this.overlay.whatif ?? this.document?.words)?.idle ?? null,
      actions: this.extras.actions, onPick: (pick) => this.choose(pick),
    });
  }

  /** Marks a machine, region or link and shows its facts; from elsewhere on the page it also brings them into sight. */
  private choose(pick: Pick | null, fromElsewhere = false): void {
    this.pick = pick;
    this.map.choose(pick);
    this.drawFacts();
    if (!fromElsewhere) return;
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.facts.element.scrollIntoView({ block: "nearest", behavior: calm ? "auto" : "smooth" });
  }

  private chooseJob(job: string): void {
    this.job = this.job === job ? null : job;
    this.map.highlight(this.job);
    this.choose(this.job === null ? null : { kind: "job", name: this.job });
    if (this.document) this.drawJobs(this.document);
  }

  /** For measuring: moves and zooms the map for a while and answers with frames a second. */
  frames(milliseconds: number): Promise<number> {
    return this.map.frames(milliseconds);
  }
}

function logo(): SVGSVGElement {
  // Three places and the lines between them.
  return s("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" },
    s("path", { d: "M5 17L12 5L19 14Z", fill: "none", stroke: "currentColor", "stroke-width": 1.6, opacity: 0.55 }),
    s("circle", { cx: 5, cy: 17, r: 3.6, fill: "#0072b2" }), s("circle", { cx: 12, cy: 5, r: 2.8, fill: "#e69f00" }),
    s("circle", { cx: 19, cy: 14, r: 4.2, fill: "#009e73" }));
}
