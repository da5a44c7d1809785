// The map: land, links, regions and machines, with zoom. Land is scaled as a picture; everything else keeps its size on the
// screen and is placed anew for every frame, so that text stays readable and dots never cover each other.
import { geoGraticule, type GeoProjection } from "d3-geo";
import { select } from "d3-selection";
import { scaleSqrt } from "d3-scale";
import { zoom as d3zoom, zoomIdentity, type D3ZoomEvent, type ZoomBehavior, type ZoomTransform } from "d3-zoom";
import { feature } from "topojson-client";
import type { Topology } from "topojson-specification";
import { h, icon, refill, s } from "../ui/dom.ts";
import type { Marks } from "../ui/palette.ts";
import { dragMachines } from "./drag.ts";
import { fitZoom, labelWidth } from "./fit.ts";
import { spatialKeys } from "./keys.ts";
import { LinkLine, shareBreaks } from "./link_lines.ts";
import { makeRoom, type Spot } from "./packing.ts";
import { polygonsOf, WORLD_WIDTH, worldPaths, worldProjection, type Point } from "./projection.ts";
import { RegionGlyph, type Sizes } from "./region_glyph.ts";
import { FEW, type Pick, type Scene } from "./scene.ts";
import { Tooltip } from "./tooltip.ts";

/** A region with more machines stays a ring: its table of machines is easier to read than so many dots. */
const MANY_DOTS = 1500;
/** Beyond so many regions nobody makes room: the frame would take too long. */
const MANY_REGIONS = 250;

export interface MapOptions {
  readonly land: Topology;
  readonly onPick: (pick: Pick | null) => void;
  readonly onDrop: (machine: string, job: string | null) => void;
  readonly editable: () => boolean;
}

interface Placed {
  readonly glyph: RegionGlyph;
  readonly at: Point;
  readonly labelHalf: number;
  /** Distance to the nearest other region on the flat world. */
  readonly alone: number;
}

export class WorldMap {
  readonly element: HTMLElement;
  private readonly svg = s("svg", { class: "map-svg", testid: "map", role: "group", "aria-label":
    "Map of regions, machines and links. Arrow keys move between them, Enter shows the facts, plus and minus zoom.", tabindex: "0" });
  private readonly ground = s("g", { class: "ground" });
  private readonly linkLayer = s("g", { class: "links" });
  private readonly regionLayer = s("g", { class: "regions" });
  private readonly hint = h("p", { class: "map-hint", "aria-hidden": "true" }, "Click the map, then scroll to zoom");
  private readonly tooltip = new Tooltip();
  private readonly zoomer: ZoomBehavior<SVGSVGElement, unknown>;
  private projection: GeoProjection = worldProjection([]);
  private scene: Scene = { regions: [], links: [] };
  private marks: Marks = new Map();
  private placed: Placed[] = [];
  private lines: LinkLine[] = [];
  private transform: ZoomTransform = zoomIdentity;
  private fitted = 1;
  private moved = false;
  width = 0;
  height = 0;
  private frame = 0;
  private labelSize = 12;
  private places = new Map<string, Spot>();

  constructor(private readonly options: MapOptions) {
    this.svg.append(this.ground, this.linkLayer, this.regionLayer);
    const button = (name: string, testid: string, path: string, act: () => void): HTMLButtonElement =>
      h("button", { type: "button", class: "button icon-button", "aria-label": name, title: name, testid, on: { click: act } }, icon(path));
    this.element = h("div", { class: "map" }, this.svg,
      h("div", { class: "map-buttons", role: "group", "aria-label": "Zoom" },
        button("Zoom in", "zoom-in", "M12 5v14M5 12h14", () => this.zoomBy(1.6)),
        button("Zoom out", "zoom-out", "M5 12h14", () => this.zoomBy(1 / 1.6)),
        button("Show everything", "zoom-fit", "M4 9V4h5M15 4h5v5M20 15v5h-5M9 20H4v-5", () => this.fit(true))),
      this.hint, this.tooltip.element);

    this.zoomer = d3zoom<SVGSVGElement, unknown>()
      .filter((event: Event) => this.mayZoom(event))
      .on("zoom", (event: D3ZoomEvent<SVGSVGElement, unknown>) => {
        this.transform = event.transform;
        if (event.sourceEvent) this.moved = true;
        this.ask();
      });
    select(this.svg).call(this.zoomer).on("dblclick.zoom", null);
    this.listen();
    new ResizeObserver(() => this.resize()).observe(this.element);
  }

  draw(scene: Scene, marks: Marks): void {
    const sameRegions = scene.regions.map((r) => `${r.name} ${r.longitude} ${r.latitude}`).join()
      === this.scene.regions.map((r) => `${r.name} ${r.longitude} ${r.latitude}`).join();
    this.scene = scene;
    this.marks = marks;
    this.rebuild(!sameRegions);
  }

  /** Marks what is chosen. */
  choose(pick: Pick | null): void {
    for (const element of this.svg.querySelectorAll(".chosen")) element.classList.remove("chosen");
    if (!pick || pick.kind === "job") return;
    const wanted = pick.kind === "machine" ? ["data-machine", pick.name]
      : pick.kind === "link" ? ["data-link", pick.id] : ["data-region", pick.name];
    this.svg.querySelectorAll(`[${wanted[0]}="${CSS.escape(wanted[1] ?? "")}"]`).forEach((element) => element.classList.add("chosen"));
  }

  /** Shows one job and fades the others; null shows all. */
  highlight(job: string | null): void {
    this.svg.classList.toggle("one-job", job !== null);
    for (const line of this.lines) line.element.classList.toggle("of-job", job !== null && line.link.jobs.includes(job));
    for (const dot of this.svg.querySelectorAll<SVGElement>(".machine")) {
      dot.classList.toggle("of-job", job !== null && dot.dataset["job"] === job);
    }
  }

  /** Moves and zooms for a while and answers with frames a second, for measuring. */
  frames(milliseconds: number): Promise<number> {
    const before = this.transform;
    const begin = performance.now();
    let painted = 0;
    return new Promise((answer) => {
      const step = (now: number): void => {
        const t = (now - begin) / 1000;
        if (now - begin >= milliseconds) {
          select(this.svg).call(this.zoomer.transform, before);
          answer(painted / ((now - begin) / 1000));
          return;
        }
        // A wide sweep in and out, so that regions open and close and all of the map is drawn.
        const k = this.fitted * 2 ** (1.5 - 1.5 * Math.cos(t * 2));
        const [cx, cy] = [WORLD_WIDTH / 2 + 250 * Math.sin(t * 1.3), 200 + 60 * Math.sin(t * 1.7)];
        select(this.svg).call(this.zoomer.transform, zoomIdentity.translate(this.width / 2 - cx * k, this.height / 2 - cy * k).scale(k));
        painted += 1;
        requestAnimationFrame(step);
      };
      requestAnimationFrame(step);
    });
  }

  private get sizes(): Sizes {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
    const unit = rem * (this.width < 560 ? 0.66 : this.width < 900 ? 0.9 : 1);
    const memories = this.scene.regions.flatMap((region) => region.machines.map((machine) => machine.memory));
    const scale = scaleSqrt().domain([0, Math.max(1, ...memories)]).range([0, (memories.length <= FEW ? 12 : 8.5) * unit]);
    return { unit, label: Math.max(9.5 * rem, 12 * unit), dot: (memory) => Math.max((memories.length <= FEW ? 6 : 4.5) * unit, scale(memory)) };
  }

  private rebuild(newWorld: boolean): void {
    const { regions, links } = this.scene;
    if (newWorld || !this.ground.firstChild) {
      this.projection = worldProjection(regions.map((region) => region.longitude));
      const land = feature(this.options.land, this.options.land.objects["land"]!);
      const paths = worldPaths(this.projection, polygonsOf(land), geoGraticule().step([30, 30])());
      refill(this.ground, s("path", { class: "sphere", d: paths.sphere }), s("path", { class: "graticule", d: paths.graticule }),
        s("g", { class: "land" }, ...paths.land.map((d) => s("path", { d }))));
    }
    const focused = (document.activeElement as SVGElement | null)?.dataset?.["machine"];
    const sizes = this.sizes;
    this.labelSize = sizes.label;
    const at = new Map(regions.map((r) => [r.name, this.projection([r.longitude, r.latitude]) ?? [0, 0] as [number, number]]));
    const points = [...at.values()];
    this.placed = regions.map((region, index) => {
      const own = points[index]!;
      const alone = points.reduce((least, other, j) => (j === index ? least : Math.min(least, Math.hypot(other[0] - own[0], other[1] - own[1]))), Infinity);
      return { glyph: new RegionGlyph(region, this.marks, sizes), at: own, labelHalf: labelWidth(region.label, sizes.label) / 2, alone };
    });
    const most = Math.max(0, ...links.map((link) => link.bytes));
    const breaks = shareBreaks(links.map((link) => link.share));
    const geo = new Map(regions.map((r) => [r.name, [r.longitude, r.latitude] as const]));
    // Heavy lines first: thin ones stay visible on top of them.
    this.lines = links.filter((link) => geo.has(link.from) && geo.has(link.to)).sort((a, b) => b.bytes - a.bytes)
      .map((link) => new LinkLine(link, this.projection, geo.get(link.from)!, geo.get(link.to)!, most, breaks, sizes.unit));
    refill(this.linkLayer, ...this.lines.map((line) => line.element));
    refill(this.regionLayer, ...this.placed.map(({ glyph }) => glyph.element));
    if (this.width > 0) {
      if (newWorld || !this.moved) this.fit(false);
      this.paint();
    }
    if (focused) this.svg.querySelector<SVGElement>(`[data-machine="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  private resize(): void {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (width === 0 || (width === this.width && height === this.height)) return;
    const first = this.width === 0;
    this.width = width;
    this.height = height;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    if (first) this.moved = false;
    this.rebuild(false);
  }

  private fit(animated: boolean): void {
    const fit = fitZoom(this.placed.map(({ at }) => at), this.width, this.height);
    this.fitted = fit.k;
    this.zoomer.scaleExtent([fit.k * 0.7, fit.k * 60])
      .extent([[0, 0], [this.width, this.height]])
      .translateExtent([[-WORLD_WIDTH * 0.3, -WORLD_WIDTH * 0.25], [WORLD_WIDTH * 1.3, WORLD_WIDTH * 0.75]]);
    this.moved = false;
    this.go(zoomIdentity.translate(fit.x, fit.y).scale(fit.k), animated);
  }

  private go(to: ZoomTransform, animated: boolean): void {
    const still = !animated || matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (still) {
      select(this.svg).call(this.zoomer.transform, to);
      return;
    }
    const from = this.transform;
    const begin = performance.now();
    const step = (now: number): void => {
      const t = Math.min(1, (now - begin) / 300);
      const ease = 1 - (1 - t) ** 3;
      // Scales change by factors, so the way between them is even in the logarithm.
      const k = from.k * (to.k / from.k) ** ease;
      const along = Math.abs(to.k - from.k) < 1e-9 ? ease : (k - from.k) / (to.k - from.k);
      select(this.svg).call(this.zoomer.transform, zoomIdentity
        .translate(from.x + (to.x - from.x) * along, from.y + (to.y - from.y) * along).scale(k));
      if (t < 1) requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  private zoomBy(factor: number): void {
    const { x, y, k } = this.transform;
    const [low, high] = this.zoomer.scaleExtent();
    const next = Math.max(low, Math.min(high, k * factor));
    // Around what is chosen, where that is in sight; else around the middle.
    const chosen = this.placed.find(({ glyph }) => glyph.element.querySelector(".chosen"));
    const spot = chosen && this.places.get(chosen.glyph.region.name);
    const inSight = spot && spot.x > 0 && spot.y > 0 && spot.x < this.width && spot.y < this.height;
    const [cx, cy] = inSight ? [spot.x, spot.y] : [this.width / 2, this.height / 2];
    this.moved = true;
    this.go(zoomIdentity.translate(cx - (cx - x) * next / k, cy - (cy - y) * next / k).scale(next), true);
  }

  /** Zooms in on a region until its machines are drawn one by one. */
  private enter(name: string): void {
    const place = this.placed.find(({ glyph }) => glyph.region.name === name);
    if (!place) return;
    const k = Math.min(this.fitted * 60, Math.max(this.transform.k, this.opensAt(place)) * 1.05);
    this.moved = true;
    this.go(zoomIdentity.translate(this.width / 2 - place.at[0] * k, this.height / 2 - place.at[1] * k).scale(k), true);
  }

  private opensAt({ glyph, alone }: Placed): number {
    const room = Number.isFinite(alone) && alone > 0 ? 2.3 * glyph.packed.radius / alone : 0;
    return Math.min(Math.max(room, this.fitted * 1.5), this.fitted * 24);
  }

  private ask(): void {
    if (this.frame === 0) this.frame = requestAnimationFrame(() => this.paint());
  }

  private paint(): void {
    this.frame = 0;
    const { x, y, k } = this.transform;
    this.ground.setAttribute("transform", `translate(${x} ${y}) scale(${k})`);
    const few = this.placed.reduce((sum, { glyph }) => sum + glyph.region.machines.length, 0) <= FEW;
    const margin = 200;
    const onScreen = this.placed.map(({ at }) => ({ x: at[0] * k + x, y: at[1] * k + y }));
    const boxes = this.placed.map((place, index) => {
      const at = onScreen[index]!;
      const near = at.x > -margin && at.y > -margin && at.x < this.width + margin && at.y < this.height + margin;
      place.glyph.expand(few || (near && place.glyph.region.machines.length <= MANY_DOTS && k >= this.opensAt(place)));
      const reach = place.glyph.reach;
      return { ...at, half: Math.max(reach, place.labelHalf) + 3, above: reach + 2, below: reach + this.labelSize * 1.4 };
    });
    const spots = boxes.length <= MANY_REGIONS ? makeRoom(boxes, this, boxes.length > 100 ? 16 : 80) : onScreen;
    this.places = new Map();
    this.placed.forEach(({ glyph }, index) => {
      const spot = spots[index]!;
      const at = onScreen[index]!;
      this.places.set(glyph.region.name, spot);
      const reach = glyph.reach + 30;
      const seen = spot.x > -reach && spot.y > -reach && spot.x < this.width + reach && spot.y < this.height + reach;
      glyph.element.style.display = seen ? "" : "none";
      if (seen) glyph.move(spot.x, spot.y, at.x, at.y);
    });
    for (const line of this.lines) line.move(this.transform, this.places.get(line.link.from)!, this.places.get(line.link.to)!);
    this.tooltip.hide();
  }

  private mayZoom(event: Event): boolean {
    if (event.type === "wheel") {
      const wheel = event as WheelEvent;
      const active = wheel.ctrlKey || wheel.metaKey || this.element.contains(document.activeElement);
      this.hint.classList.toggle("shown", !active);
      return active;
    }
    if (event.type.startsWith("touch")) {
      // One finger scrolls the page until somebody has zoomed in.
      return (event as TouchEvent).touches.length > 1 || this.transform.k > this.fitted * 1.01;
    }
    if ((event as MouseEvent).button > 0) return false;
    return !(this.options.editable() && (event.target as Element).closest(".machine"));
  }

  private pickOf(target: Element): Pick | null {
    const element = target.closest<SVGElement>(".pickable");
    if (!element) return null;
    const { machine, link, region } = element.dataset;
    if (machine !== undefined) return { kind: "machine", name: machine };
    if (link !== undefined) return { kind: "link", id: link };
    if (region !== undefined) return { kind: "region", name: region };
    const group = element.closest<SVGElement>(".region");
    return group ? { kind: "region", name: group.dataset["region"] ?? "" } : null;
  }

  private about(pick: Pick): string {
    if (pick.kind === "link") return this.scene.links.find((link) => link.id === pick.id)?.about ?? "";
    const region = this.scene.regions.find((r) => (pick.kind === "region" ? r.name === pick.name : r.machines.some((m) => m.name === pick.name)));
    return pick.kind === "region" ? region?.about ?? "" : region?.machines.find((m) => m.name === pick.name)?.about ?? "";
  }

  private listen(): void {
    this.svg.addEventListener("click", (event) => {
      const pick = this.pickOf(event.target as Element);
      if (pick?.kind === "region" && (event.target as Element).closest(".ring")) this.enter(pick.name);
      this.options.onPick(pick);
    });
    spatialKeys(this.svg, ".machine, .ring, .link, .region-label.pickable", (element) => {
      const pick = this.pickOf(element);
      if (pick?.kind === "region" && element.matches(".ring")) this.enter(pick.name);
      this.options.onPick(pick);
    });
    this.svg.addEventListener("keydown", (event) => {
      if (event.key === "+" || event.key === "=") this.zoomBy(1.6);
      else if (event.key === "-") this.zoomBy(1 / 1.6);
      else if (event.key === "0") this.fit(true);
      else if (event.key === "Escape") this.options.onPick(null);
    });
    const show = (event: Event): void => {
      const pick = this.pickOf(event.target as Element);
      if (!pick) {
        this.tooltip.hide();
        return;
      }
      const box = this.element.getBoundingClientRect();
      const own = (event.target as Element).closest(".pickable")!.getBoundingClientRect();
      const mouse = event instanceof MouseEvent && pick.kind === "link";
      this.tooltip.show(this.about(pick), mouse ? event.clientX - box.x : own.x + own.width / 2 - box.x,
        mouse ? event.clientY - box.y : own.y - box.y, this.width);
    };
    this.svg.addEventListener("pointerover", show);
    this.svg.addEventListener("focusin", show);
    this.svg.addEventListener("focusout", () => this.tooltip.hide());
    this.svg.addEventListener("pointerleave", () => {
      this.tooltip.hide();
      this.hint.classList.remove("shown");
    });
    dragMachines(this.svg, {
      machineOf: (target) => target.closest<SVGElement>(".machine")?.dataset["machine"] ?? null,
      drop: this.options.onDrop,
      enabled: this.options.editable,
    });
  }
}
