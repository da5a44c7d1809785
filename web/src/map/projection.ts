// From longitude and latitude to a flat world of fixed size; zooming is a transform on top of that.
import { geoEqualEarth, geoInterpolate, geoPath, type GeoProjection } from "d3-geo";
import type { GeoPermissibleObjects } from "d3-geo";
import type { Feature, FeatureCollection, Geometry, Polygon } from "geojson";

export const WORLD_WIDTH = 1000;
export type Point = readonly [number, number];

/** The longitude opposite to the widest gap between places, so that the edge of the map cuts where nobody is. */
export function centreLongitude(longitudes: readonly number[]): number {
  const around = [...new Set(longitudes.map((at) => ((at % 360) + 360) % 360))].sort((a, b) => a - b);
  const first = around[0];
  if (first === undefined) return 10;
  let widest = -1;
  let edge = 180;
  around.forEach((from, index) => {
    const to = around[index + 1] ?? first + 360;
    if (to - from > widest) {
      widest = to - from;
      edge = (from + to) / 2;
    }
  });
  // Where the edge of the usual picture of the world lies in the gap, too, that picture is the one people know.
  const usual = 10;
  const cut = (((usual + 180 - edge + 540) % 360) + 360) % 360 - 180;
  if (Math.abs(cut) < widest / 2 - 10) return usual;
  return ((edge + 180 + 540) % 360) - 180;
}

export function worldProjection(longitudes: readonly number[]): GeoProjection {
  return geoEqualEarth().rotate([-centreLongitude(longitudes), 0]).fitWidth(WORLD_WIDTH, { type: "Sphere" }).precision(0.3);
}

export interface WorldPaths {
  /** One outline for each continent and island, so that a browser leaves out those that are not in sight. */
  readonly land: readonly string[];
  readonly sphere: string;
  readonly graticule: string;
}

export function worldPaths(projection: GeoProjection, land: readonly Polygon[], graticule: GeoPermissibleObjects): WorldPaths {
  const path = geoPath(projection).digits(2);
  return { land: land.map((part) => path(part) ?? ""), sphere: path({ type: "Sphere" }) ?? "", graticule: path(graticule) ?? "" };
}

const SAMPLES = 40;

/** A great circle as points of the flat world. */
export function greatCircle(projection: GeoProjection, from: Point, to: Point): Point[] {
  const between = geoInterpolate([...from], [...to]);
  const points: Point[] = [];
  for (let i = 0; i <= SAMPLES; i += 1) points.push(projection(between(i / SAMPLES)) ?? [0, 0]);
  return points;
}

/** Whether a line between two neighbouring points would run across the whole map, because the world's edge lies between. */
export function crossesEdge(a: Point, b: Point): boolean {
  return Math.abs(a[0] - b[0]) > WORLD_WIDTH / 3;
}

/** The polygons of a feature or of several. */
export function polygonsOf(land: Feature<Geometry> | FeatureCollection<Geometry>): Polygon[] {
  const geometries = land.type === "FeatureCollection" ? land.features.map((one) => one.geometry) : [land.geometry];
  return geometries.flatMap((geometry): Polygon[] => {
    if (geometry.type === "Polygon") return [geometry];
    return geometry.type === "MultiPolygon" ? geometry.coordinates.map((coordinates) => ({ type: "Polygon", coordinates })) : [];
  });
}
