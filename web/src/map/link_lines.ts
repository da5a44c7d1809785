// The lines between regions: width by traffic, colour by the share of the step they cost, dashes where a speed is estimated,
// dots with a cross where nothing passes.
import type { GeoProjection } from "d3-geo";
import { scaleLinear } from "d3-scale";
import { s } from "../ui/dom.ts";
import { crossesEdge, greatCircle, type Point } from "./projection.ts";
import type { Spot } from "./packing.ts";
import type { MapLink } from "./scene.ts";

const COLOURS = 5; // CSS has so many, from share-0 to share-4

/** Round numbers that part the shares of a plan into at most five classes. */
export function shareBreaks(shares: readonly number[]): number[] {
  const most = Math.max(0, ...shares);
  if (most <= 0) return [];
  const breaks = scaleLinear().domain([0, most]).ticks(COLOURS - 1).filter((tick) => tick > 0 && tick < most);
  return breaks.length < COLOURS ? breaks : breaks.filter((_, index) => index % 2 === 1);
}

/** The colour of a share: the first for the lowest class, the last for the highest. */
export function shareColour(share: number, breaks: readonly number[]): number {
  const place = breaks.filter((end) => share >= end).length;
  return breaks.length === 0 ? 0 : Math.round(place * (COLOURS - 1) / breaks.length);
}

export function linkWidth(bytes: number, most: number): number {
  return bytes <= 0 || most <= 0 ? 1 : 1.2 + 5.3 * Math.sqrt(bytes / most);
}

export interface Transform {
  readonly x: number;
  readonly y: number;
  readonly k: number;
}

export class LinkLine {
  readonly element: SVGGElement;
  private readonly lines: readonly SVGPathElement[];
  private readonly cross: SVGPathElement | null;
  private readonly points: readonly Point[];

  constructor(readonly link: MapLink, projection: GeoProjection, from: Point, to: Point, most: number, breaks: readonly number[], unit: number) {
    this.points = greatCircle(projection, from, to);
    const line = s("path", { class: "link-line" });
    line.style.strokeWidth = `${(linkWidth(link.bytes, most) * unit).toFixed(2)}px`;
    const halo = s("path", { class: "link-halo" });
    halo.style.strokeWidth = `${(linkWidth(link.bytes, most) * unit + 2.4).toFixed(2)}px`;
    const hit = s("path", { class: "link-hit" });
    this.lines = [halo, line, hit];
    this.cross = link.kind === "blocked" ? s("path", { class: "link-cross", d: "M-4 -4L4 4M4 -4L-4 4" }) : null;
    this.element = s("g", {
      class: `link pickable ${link.kind} share-${shareColour(link.share, breaks)}`, role: "button", tabindex: "-1", testid: "link",
      "data-link": link.id, "data-a": link.from, "data-b": link.to, "data-origin": link.kind, "aria-label": link.about,
    }, halo, line, hit, this.cross);
  }

  /** Draws it for a zoom; its ends follow the regions that have made room for others. */
  move(zoom: Transform, from: Spot, to: Spot): void {
    const last = this.points.length - 1;
    const first = this.points[0]!;
    const end = this.points[last]!;
    const shiftFrom = { x: from.x - (first[0] * zoom.k + zoom.x), y: from.y - (first[1] * zoom.k + zoom.y) };
    const shiftTo = { x: to.x - (end[0] * zoom.k + zoom.x), y: to.y - (end[1] * zoom.k + zoom.y) };
    let d = "";
    let before: Point | null = null;
    this.points.forEach((point, index) => {
      const t = index / last;
      const x = point[0] * zoom.k + zoom.x + (1 - t) * shiftFrom.x + t * shiftTo.x;
      const y = point[1] * zoom.k + zoom.y + (1 - t) * shiftFrom.y + t * shiftTo.y;
      d += `${before === null || crossesEdge(before, point) ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
      before = point;
      if (this.cross && index === last >> 1) this.cross.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
    });
    for (const line of this.lines) line.setAttribute("d", d);
  }
}
