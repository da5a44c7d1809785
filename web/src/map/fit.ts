// How far to zoom so that all regions are seen, and how wide a label is.
import type { Point } from "./projection.ts";
import { WORLD_WIDTH } from "./projection.ts";

const CLOSEST = 14; // one city alone is not shown closer than this: its coast at 1:110 million would be a few straight lines

export function fitZoom(points: readonly Point[], width: number, height: number): { x: number; y: number; k: number } {
  const world: Point[] = points.length > 0 ? [...points] : [[60, 60], [WORLD_WIDTH - 60, 400]];
  const xs = world.map((point) => point[0]);
  const ys = world.map((point) => point[1]);
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  // Glyphs and labels keep their size, so the margin is in pixels of the screen.
  const marginX = Math.min(40 + width * 0.045, width * 0.12);
  const marginY = Math.min(40 + height * 0.055, height * 0.15);
  const k = Math.min((width - 2 * marginX) / Math.max(1, right - left), (height - 2 * marginY) / Math.max(1, bottom - top), CLOSEST);
  return { k, x: width / 2 - k * (left + right) / 2, y: height / 2 - k * (top + bottom) / 2 };
}

const pen = typeof document === "undefined" ? null : document.createElement("canvas").getContext("2d");
const widths = new Map<string, number>();

export function labelWidth(text: string, size: number): number {
  const key = `${size} ${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (pen) pen.font = `600 ${size}px system-ui, sans-serif`;
    width = pen ? pen.measureText(text).width : text.length * size * 0.55;
    widths.set(key, width);
  }
  return width;
}
