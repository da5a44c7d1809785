// One region on the map: its machines as dots, or one ring with a count where there are too many to tell apart.
import { s } from "../ui/dom.ts";
import { markOf, type Marks } from "../ui/palette.ts";
import { ring, ringPart } from "./donut.ts";
import { packDots, type Packed } from "./packing.ts";
import type { MapMachine, MapRegion, Spent } from "./scene.ts";

export interface Sizes {
  /** Pixels of one design pixel: larger on wide screens, smaller on narrow ones. */
  readonly unit: number;
  /** Pixels of a label's text. */
  readonly label: number;
  /** From a machine's memory to the radius of its dot. */
  readonly dot: (memory: number) => number;
}

/** Clockwise from the top: the time at work, then the time waiting. */
export function spentRing({ busy, waiting }: Spent, inner: number, outer: number): SVGPathElement[] {
  const until = Math.min(1, busy);
  const both = Math.min(1, busy + waiting);
  return [s("path", { class: "busy-ring", d: ringPart(inner, outer, 0, until) }), s("path", { class: "waiting-ring", d: ringPart(inner, outer, until, both) })];
}

export class RegionGlyph {
  readonly element: SVGGElement;
  readonly packed: Packed;
  readonly ringRadius: number;
  private readonly order: readonly MapMachine[];
  private readonly radii: readonly number[];
  private readonly dots = s("g", { class: "dots" });
  private readonly whole: SVGGElement;
  private readonly label: SVGTextElement;
  private readonly leader = s("line", { class: "leader" });
  private readonly anchor = s("circle", { class: "anchor" });
  private expanded: boolean | null = null;
  private built = false;

  constructor(readonly region: MapRegion, private readonly marks: Marks, private readonly sizes: Sizes) {
    const rank = new Map([...marks.keys()].map((job, index) => [job, index]));
    const place = (machine: MapMachine): number => (machine.job === null ? Infinity : rank.get(machine.job) ?? Infinity);
    // The same job side by side, larger machines inside, so that a region reads as patches rather than confetti.
    this.order = [...region.machines].sort((a, b) => place(a) - place(b) || b.memory - a.memory || a.name.localeCompare(b.name, "en", { numeric: true }));
    this.radii = this.order.map((machine) => sizes.dot(machine.memory));
    this.packed = packDots(this.radii, 1.5 * sizes.unit);
    this.ringRadius = Math.min(34, 9 + 1.7 * Math.sqrt(region.machines.length)) * sizes.unit;
    this.whole = this.buildRing();
    this.label = s("text", { class: "region-label", "text-anchor": "middle", role: "button", tabindex: "-1", testid: "region-label", "aria-label": region.about }, region.label);
    this.label.style.fontSize = `${sizes.label}px`;
    this.anchor.setAttribute("r", String(2 * sizes.unit));
    this.element = s("g", { class: "region", testid: "region", "data-region": region.name },
      this.leader, this.anchor, this.dots, this.whole, this.label);
  }

  get reach(): number {
    return this.expanded ? this.packed.radius : this.ringRadius;
  }

  expand(wanted: boolean): void {
    if (wanted === this.expanded) return;
    this.expanded = wanted;
    if (wanted && !this.built) {
      this.built = true;
      this.order.forEach((machine, index) => this.dots.append(this.buildDot(machine, index)));
    }
    this.element.dataset["expanded"] = String(wanted);
    this.dots.style.display = wanted ? "" : "none";
    this.whole.style.display = wanted ? "none" : "";
    this.label.setAttribute("y", String(this.reach + 1.08 * this.sizes.label));
    this.label.classList.toggle("pickable", wanted);
  }

  /** Puts the glyph at a place of the screen; a thin line leads to where the region really is, when that is elsewhere. */
  move(x: number, y: number, trueX: number, trueY: number): void {
    this.element.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
    const dx = trueX - x;
    const dy = trueY - y;
    const away = Math.hypot(dx, dy) > Math.max(6, this.reach * 0.8);
    this.leader.style.display = this.anchor.style.display = away ? "" : "none";
    if (!away) return;
    this.leader.setAttribute("x2", dx.toFixed(1));
    this.leader.setAttribute("y2", dy.toFixed(1));
    this.anchor.setAttribute("cx", dx.toFixed(1));
    this.anchor.setAttribute("cy", dy.toFixed(1));
  }

  private buildRing(): SVGGElement {
    const outer = this.ringRadius;
    const inner = outer * 0.7;
    const counts = new Map<string | null, number>();
    for (const machine of this.order) counts.set(machine.job, (counts.get(machine.job) ?? 0) + 1);
    const slices = [...counts].map(([job, amount]) => ({ colour: markOf(this.marks, job).colour, amount }));
    const letters = [...counts.keys()].map((job) => markOf(this.marks, job).letter).filter(Boolean).slice(0, 3).join(" ");
    const number = s("text", { class: "ring-count", "text-anchor": "middle", "aria-hidden": "true", dy: letters ? "0em" : "0.35em" },
      this.region.machines.length.toLocaleString("en"));
    number.style.fontSize = `${10.5 * this.sizes.unit}px`;
    const names = s("text", { class: "ring-letters", "text-anchor": "middle", dy: "1.05em", "aria-hidden": "true" }, letters);
    names.style.fontSize = `${8.5 * this.sizes.unit}px`;
    return s("g", {
      class: "ring pickable", role: "button", tabindex: "-1", testid: "region-group", "data-region": this.region.name,
      "data-count": this.region.machines.length,
      "aria-label": this.region.about,
    }, s("circle", { class: "ring-back", r: outer + 1.5 }),
    ...ring(slices, inner, outer).map(({ colour, d }) => {
      const part = s("path", { d, class: slices.length > 1 && "ring-part" });
      part.style.fill = colour;
      return part;
    }), number, names);
  }

  private buildDot(machine: MapMachine, index: number): SVGGElement {
    const spot = this.packed.spots[index] ?? { x: 0, y: 0 };
    const radius = this.radii[index] ?? 0;
    const mark = markOf(this.marks, machine.job);
    const dot = s("circle", { r: radius.toFixed(2), class: "dot" });
    dot.style.fill = mark.colour;
    const group = s("g", {
      class: `machine pickable${machine.job === null ? " idle" : ""}${machine.lost ? " lost" : ""}`,
      role: "button", tabindex: "-1", testid: "machine",
      "data-machine": machine.name, "data-job": machine.job ?? "", "aria-label": machine.about,
      transform: `translate(${spot.x.toFixed(2)} ${spot.y.toFixed(2)})`,
    }, dot);
    if (machine.jobs.length > 1) {
      const slices = machine.jobs.map((job) => ({ colour: markOf(this.marks, job).colour, amount: 1 }));
      for (const { colour, d } of ring(slices, 0, radius)) {
        const part = s("path", { d });
        part.style.fill = colour;
        group.append(part);
      }
    }
    if (machine.spends) group.append(...spentRing(machine.spends, radius + 1.2, radius + 3.8));
    if (machine.lost) {
      const arm = radius * 0.9;
      group.append(s("path", { class: "lost-cross", d: `M${-arm} ${-arm}L${arm} ${arm}M${arm} ${-arm}L${-arm} ${arm}` }));
    } else if (mark.letter && radius >= 5) {
      const text = s("text", { class: "dot-letter", "text-anchor": "middle", dy: "0.36em", "aria-hidden": "true" }, mark.letter);
      text.style.fill = mark.ink;
      text.style.fontSize = `${Math.min(radius * 1.25, 12 * this.sizes.unit).toFixed(1)}px`;
      group.append(text);
    }
    return group;
  }
}
