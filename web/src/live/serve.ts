// The page with `hulk serve` behind it: choose, plan, try, plan again, go back. All numbers come from the server.
import type { Catalogue, Change, ClusterView, ComparisonView, Explanation, HulkDocument, JobTimelineView, JobView, PlanEntry, Source, WhatIf } from "../contract.ts";
import type { Page } from "../page.ts";
import { History } from "../sections/history.ts";
import { announce } from "../ui/announce.ts";
import { h } from "../ui/dom.ts";
import { actionsFor } from "./actions.ts";
import { Cancelled, follow, get, post, Problem, remove } from "./api.ts";
import { Background } from "./background.ts";
import { openEditor } from "./editor.ts";
import { fileMenu } from "./files.ts";
import { Steps, type Place } from "./steps.ts";
import { WhatIfBar } from "./whatif.ts";
import { OWN, Workbench } from "./workbench.ts";

const HASH = "#plan=";
const LONGER = 5; // seconds; jobs that lost nothing are then planned anew, too

export async function startServe(page: Page): Promise<void> {
  const catalogue = await get<Catalogue>("/api/catalogue");
  await new Serve(page, catalogue).start();
}

class Serve {
  private readonly steps = new Steps();
  private readonly workbench: Workbench;
  private readonly whatifBar: WhatIfBar;
  private readonly history = new History();
  private readonly problem = h("div", { class: "problem error-box", role: "alert", testid: "error" });
  private document: HulkDocument | null = null;
  private whatif: WhatIf | null = null;
  private cluster: Source = { name: "" };
  private jobs: Source = { name: "" };
  private cancelTask: (() => void) | null = null;
  private readonly background = new Background();
  /** Counts requests, so that a late answer to an old one is not drawn over a newer one. */
  private turn = 0;

  constructor(private readonly page: Page, private readonly catalogue: Catalogue) {
    this.workbench = new Workbench(catalogue, {
      choose: () => this.safely(() => this.preview()),
      edit: (what) => this.safely(() => this.edit(what)),
      plan: () => this.safely(() => this.plan()),
      cancel: () => this.cancelTask?.(),
      undo: () => this.safely(() => this.visit(this.steps.undo(this.parent))),
      redo: () => this.safely(() => this.visit(this.steps.redo())),
      join: () => this.join(),
      openPlan: (text) => this.safely(() => this.bring(text)),
    });
    this.whatifBar = new WhatIfBar({
      drop: (index) => this.safely(() => this.change(this.changes.filter((_, at) => at !== index))),
      keep: () => this.safely(() => this.keep()),
      replan: () => this.safely(() => this.replan()),
      longer: () => this.safely(() => this.replan([], LONGER)),
      discard: () => this.safely(() => this.change([])),
    });
    this.problem.hidden = true;
  }

  async start(): Promise<void> {
    const { page } = this;
    page.controls.append(this.workbench.element);
    page.status.append(this.workbench.progress);
    page.notes.append(this.problem);
    page.tail.append(h("section", { class: "section", id: "history", "aria-labelledby": "history-title" },
      h("div", { class: "section-head" }, h("h2", { id: "history-title" }, "History"), h("p", { class: "lead" }, "Every plan is kept until it is deleted.")), this.history.element));
    document.body.append(this.whatifBar.element);
    page.downloads.append(fileMenu(this.catalogue, () => this.steps.place?.plan ?? null, (error) => this.fail(error)));
    page.use({
      actions: (pick) => (this.document ? actionsFor(pick, this.document, this.whatif?.owner ?? this.document.owner, this.lost, (...more) => this.safely(() => this.change([...this.changes, ...more]))) : null),
      onDrop: (machine, job) => this.safely(() => this.change([...this.changes, { kind: "move", machine, job }])),
      editable: () => this.document !== null,
      askTimeline: () => h("span", { testid: "timeline-wait" }, "It is being played…"),
      askComparison: () => h("div", { class: "group" },
        h("button", { type: "button", class: "button primary", testid: "compare-button", on: { click: () => this.safely(() => this.compare("paper")) } }, "Compare with the paper’s systems"),
        h("button", { type: "button", class: "button", testid: "compare-all-button", on: { click: () => this.safely(() => this.compare("all")) } }, "with every baseline")),
    });
    document.addEventListener("keydown", (event) => this.shortcut(event));
    const { clusters, jobs } = this.catalogue;
    this.workbench.choose((clusters.find((one) => one.name === "hulk47") ?? clusters[0])?.name ?? "", (jobs.find((one) => one.name === "paper4") ?? jobs[0])?.name ?? "");
    const wanted = location.hash.startsWith(HASH) ? decodeURIComponent(location.hash.slice(HASH.length)) : null;
    await this.safely(() => (wanted ? this.arrive(wanted) : this.preview()));
    await this.safely(() => this.listPlans());
  }

  /** Ctrl+Z and Ctrl+Shift+Z, except where somebody writes. */
  private shortcut(event: KeyboardEvent): void {
    const writing = (event.target as Element).closest("input, textarea, dialog");
    if (writing || event.key.toLowerCase() !== "z" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    void this.safely(() => this.visit(event.shiftKey ? this.steps.redo() : this.steps.undo(this.parent)));
  }

  private get changes(): readonly Change[] {
    return this.steps.place?.changes ?? [];
  }

  private get parent(): string | null {
    return this.document?.saved?.parent ?? null;
  }

  private get lost(): ReadonlySet<string> {
    return new Set(this.changes.flatMap((change) => (change.kind === "lose" ? [change.machine] : [])));
  }

  /** Runs something and says what went wrong, where it did. */
  private async safely(act: () => Promise<void>): Promise<void> {
    this.problem.hidden = true;
    try {
      await act();
    } catch (error) {
      this.fail(error);
    }
    this.workbench.steps(this.steps.canUndo(this.parent), this.steps.canRedo, this.document !== null);
  }

  private fail(error: unknown): void {
    if (error instanceof Cancelled) return announce("Cancelled");
    const text = error instanceof Problem ? error.text : String(error);
    this.problem.replaceChildren(h("span", {}, text),
      h("button", { type: "button", class: "button quiet", "aria-label": "Close this message", on: { click: () => { this.problem.hidden = true; } } }, "×"));
    this.problem.hidden = false;
    announce("");
  }

  private source(what: "cluster" | "jobs"): Source {
    const value = what === "cluster" ? this.workbench.cluster : this.workbench.jobsFile;
    return value === OWN ? this[what] : { name: value };
  }

  /** Shows the machines that were chosen, before anything is planned on them. */
  private async preview(): Promise<void> {
    const turn = ++this.turn;
    this.cluster = this.source("cluster");
    this.jobs = this.source("jobs");
    const answer = await post<{ cluster: ClusterView; jobs: JobView[] }>("/api/check", { cluster: this.cluster, jobs: this.jobs });
    if (turn !== this.turn) return;
    this.document = null;
    this.whatif = null;
    this.page.preview(answer.cluster, answer.jobs.map((job) => job.name));
    this.whatifBar.show([], null);
    history.replaceState(null, "", location.pathname);
    announce("Ready to plan");
  }

  private async edit(what: "cluster" | "jobs"): Promise<void> {
    const now = this.source(what);
    const folder = what === "cluster" ? "clusters" : "jobs";
    const text = "text" in now ? now.text : (await get<{ text: string }>(`/api/catalogue/${folder}/${encodeURIComponent(now.name)}`)).text;
    openEditor({
      title: what === "cluster" ? "Machines and links" : "Jobs", testid: `editor-${what}`, text, limit: this.catalogue.limits.bytes, action: "Use it",
      help: what === "cluster" ? "A cluster file: regions, machines, links. What it leaves out is estimated." : "A jobs file: models, batches, deadlines.",
      use: async (own) => {
        const cluster = what === "cluster" ? { text: own } : this.source("cluster");
        const jobs = what === "jobs" ? { text: own } : this.source("jobs");
        const answer = await post<{ cluster: ClusterView }>("/api/check", { cluster, jobs });
        this[what] = { text: own };
        this.workbench.own(what, what === "cluster" ? `${answer.cluster.name} (edited)` : "your jobs");
        await this.preview();
      },
    });
  }

  private async task<T>(name: string, path: string, body: unknown): Promise<T> {
    // What a person waits for goes before what nobody asked for yet.
    this.background.stop();
    const { task } = await post<{ task: string }>(path, body);
    this.workbench.busy(true);
    this.whatifBar.busy(true);
    announce(`${name}…`, "busy");
    try {
      return await follow<T>(task, {
        say: (text) => { this.workbench.progress.textContent = text; },
        started: (cancel) => { this.cancelTask = cancel; },
      });
    } finally {
      this.cancelTask = null;
      this.workbench.progress.textContent = "";
      this.workbench.busy(false);
      this.whatifBar.busy(false);
    }
  }

  private async plan(): Promise<void> {
    const body = { cluster: this.source("cluster"), jobs: this.source("jobs"), options: this.workbench.options };
    const { plan } = await this.task<{ plan: string }>("Planning", "/api/plans", body);
    await this.arrive(plan);
  }

  private async bring(text: string): Promise<void> {
    let plan: unknown;
    try {
      plan = JSON.parse(text);
    } catch {
      throw new Problem(0, { message: "this file is not JSON", where: null, hint: "open a plan that `hulk plan -o` wrote" });
    }
    const answer = await post<{ plan: string }>("/api/plans/load", { cluster: this.source("cluster"), jobs: this.source("jobs"), plan });
    await this.arrive(answer.plan);
  }

  /** Goes to a plan that is new here. */
  private async arrive(plan: string): Promise<void> {
    const document = await get<HulkDocument>(`/api/plans/${encodeURIComponent(plan)}`);
    this.steps.go({ plan, changes: [] });
    this.draw(document, null);
    void this.useSources(plan, document).catch(() => undefined);
    const how = document.saved?.how || "planned";
    announce(how.charAt(0).toUpperCase() + how.slice(1));
    await this.listPlans();
    void this.complete(plan);
  }

  /** The controls name what the plan that is shown was made of: whoever plans again begins with that. */
  private async useSources(plan: string, document: HulkDocument): Promise<void> {
    type Given = { name?: string | null; text?: string | null };
    const found = await get<{ cluster: Given; jobs: Given }>(`/api/plans/${encodeURIComponent(plan)}/inputs`);
    if (this.steps.place?.plan !== plan) return;
    for (const what of ["cluster", "jobs"] as const) {
      const { name, text } = found[what];
      this[what] = typeof text === "string" ? { text } : { name: name ?? "" };
      if (typeof text === "string") this.workbench.own(what, what === "cluster" ? document.cluster.name : "your jobs");
      else this.workbench.choose(what === "cluster" ? name ?? "" : this.workbench.cluster, what === "jobs" ? name ?? "" : this.workbench.jobsFile);
    }
  }

  /** Goes to a place of undo and redo. */
  private async visit(place: Place | null): Promise<void> {
    if (!place) return;
    const document = this.document?.saved?.id === place.plan ? this.document : await get<HulkDocument>(`/api/plans/${encodeURIComponent(place.plan)}`);
    this.draw(document, await this.answerFor(place));
    announce(place.changes.length > 0 ? "Back to a what-if" : "Back to a plan");
    await this.listPlans();
    void this.complete(place.plan);
  }

  private draw(document: HulkDocument, whatif: WhatIf | null): void {
    this.document = document;
    this.whatif = whatif;
    this.page.show(document, { whatif, lost: this.lost, spent: new Map() });
    this.whatifBar.show(this.changes, whatif);
    const plan = this.steps.place?.plan;
    if (plan) history.replaceState(null, "", `${HASH}${encodeURIComponent(plan)}`);
  }

  private async answerFor(place: Place): Promise<WhatIf | null> {
    if (place.changes.length === 0) return null;
    return await post<WhatIf>(`/api/plans/${encodeURIComponent(place.plan)}/whatif`, { changes: place.changes });
  }

  private async change(changes: readonly Change[]): Promise<void> {
    const { document } = this;
    const now = this.steps.place;
    if (!document || !now) return;
    const turn = ++this.turn;
    const place = { plan: now.plan, changes };
    const answer = await this.answerFor(place);
    if (turn !== this.turn) return;
    this.steps.go(place);
    this.draw(document, answer);
    announce(answer ? answer.lines[0] ?? "Priced" : "As planned");
  }

  private join(): void {
    openEditor({
      title: "Machines that join", testid: "editor-join", limit: this.catalogue.limits.bytes, action: "Add them",
      help: "Machines as in a cluster file; for instance in a region that is there already.",
      text: `machines:\n  - {name: new-1, region: ${this.document?.cluster.regions[0]?.name ?? "zurich"}, gpu: ${this.catalogue.gpu_types[0] ?? "h100"}, gpus: 8, network: 25 Gbit/s}\n`,
      use: (text) => this.replan([{ kind: "join", text }]),
    });
  }

  private async keep(): Promise<void> {
    const now = this.steps.place;
    if (!now) return;
    const { plan } = await post<{ plan: string }>(`/api/plans/${encodeURIComponent(now.plan)}/keep`, { changes: now.changes });
    await this.arrive(plan);
  }

  /** Plans again after what was tried. Machines that were moved by hand are kept there first, and the planner goes on from
   * that; machines that join can only be planned with, not priced. */
  private async replan(joined: readonly Change[] = [], seconds?: number): Promise<void> {
    const now = this.steps.place;
    if (!now) return;
    let from = now.plan;
    let changes: readonly Change[] = [...now.changes, ...joined];
    if (now.changes.some((change) => change.kind === "move")) {
      from = (await post<{ plan: string }>(`/api/plans/${encodeURIComponent(from)}/keep`, { changes: now.changes })).plan;
      changes = joined;
    }
    const { plan } = await this.task<{ plan: string }>("Planning again", `/api/plans/${encodeURIComponent(from)}/replan`, { changes, ...(seconds === undefined ? {} : { seconds }) });
    this.page.rest();
    await this.arrive(plan);
    const lines = this.document?.replan?.lines ?? [];
    if (lines[0]) announce(lines[0]);
  }

  private async compare(baselines: "paper" | "all"): Promise<void> {
    const plan = this.steps.place?.plan;
    if (!plan) return;
    const { comparison } = await this.task<{ comparison: ComparisonView }>("Comparing", `/api/plans/${encodeURIComponent(plan)}/compare`, { baselines });
    this.add(plan, (document) => ({ ...document, comparison }));
    announce(comparison.verdict);
    void this.complete(plan);
  }

  /** Asks for what a document still lacks, behind the scenes: the timeline, then what would help. */
  private async complete(plan: string): Promise<void> {
    const path = `/api/plans/${encodeURIComponent(plan)}`;
    try {
      await this.background.start(plan, async (ask) => {
        if (this.document?.timeline === null) {
          const { timeline } = await ask<{ timeline: Record<string, JobTimelineView> }>(`${path}/timeline`);
          this.add(plan, (document) => ({ ...document, timeline }));
        }
        if (Object.values(this.document?.words.jobs ?? {}).some((words) => words.would_help === null)) {
          const { explanation } = await ask<{ explanation: Explanation }>(`${path}/explain`);
          this.add(plan, (document) => ({ ...document, words: { ...document.words, jobs: Object.fromEntries(Object.entries(document.words.jobs).map(
            ([job, words]) => [job, { ...words, would_help: explanation.jobs[job]?.what_if?.map(({ text }) => text) ?? words.would_help }])) } }));
        }
      });
    } catch (error) {
      // The plan stands without these; the status line says so, nothing else is disturbed.
      announce(error instanceof Problem ? `Timeline: ${error.message}` : String(error), "bad");
    }
  }

  /** Adds to the document that is shown, if it is still that of the plan. */
  private add(plan: string, more: (document: HulkDocument) => HulkDocument): void {
    if (this.document && this.steps.place?.plan === plan) this.draw(more(this.document), this.whatif);
  }

  private async listPlans(): Promise<void> {
    const { plans } = await get<{ plans: PlanEntry[] }>("/api/plans");
    this.history.show(plans, this.steps.place?.plan ?? null, (id) => this.safely(() => this.arrive(id)), (id) => this.safely(async () => {
      await remove(`/api/plans/${encodeURIComponent(id)}`);
      this.steps.forget(id);
      await this.listPlans();
    }));
  }
}
