import assert from "node:assert/strict";
import { test } from "node:test";
import { honeycomb, makeRoom, packDots, type Box } from "../src/map/packing.ts";

test("places of a honeycomb are at least one apart", () => {
  const places = honeycomb(120);
  for (let i = 0; i < places.length; i += 1) {
    for (let j = 0; j < i; j += 1) {
      assert.ok(Math.hypot(places[i]!.x - places[j]!.x, places[i]!.y - places[j]!.y) > 0.999);
    }
  }
});

test("dots of all sizes never cover each other", () => {
  const radii = Array.from({ length: 50 }, (_, i) => 4 + (i % 7));
  const { spots, radius } = packDots(radii, 1);
  spots.forEach((a, i) => {
    assert.ok(Math.hypot(a.x, a.y) + radii[i]! <= radius + 1e-9);
    spots.slice(0, i).forEach((b, j) => assert.ok(Math.hypot(a.x - b.x, a.y - b.y) >= radii[i]! + radii[j]!));
  });
});

function overlaps(boxes: readonly Box[], spots: readonly { x: number; y: number }[]): number {
  let count = 0;
  for (let i = 0; i < boxes.length; i += 1) {
    for (let j = 0; j < i; j += 1) {
      const [a, b] = [boxes[i]!, boxes[j]!];
      const sideways = a.half + b.half - Math.abs(spots[i]!.x - spots[j]!.x);
      const upright = Math.min(spots[i]!.y + a.below, spots[j]!.y + b.below) - Math.max(spots[i]!.y - a.above, spots[j]!.y - b.above);
      if (sideways > 0.5 && upright > 0.5) count += 1;
    }
  }
  return count;
}

test("regions that are near each other make room, and stay in the frame", () => {
  const frame = { width: 900, height: 520 };
  const boxes = Array.from({ length: 20 }, (_, i) => ({ x: 400 + 9 * (i % 5), y: 200 + 7 * Math.floor(i / 5), half: 28, above: 22, below: 38 }));
  const spots = makeRoom(boxes, frame);
  assert.equal(overlaps(boxes, spots), 0);
  for (const spot of spots) assert.ok(spot.x >= 0 && spot.x <= frame.width && spot.y >= 0 && spot.y <= frame.height);
});

test("two regions at one place part, and what is alone stays", () => {
  const frame = { width: 900, height: 520 };
  const box = { half: 20, above: 20, below: 30 };
  const boxes = [{ x: 100, y: 100, ...box }, { x: 100, y: 100, ...box }, { x: 600, y: 300, ...box }];
  const spots = makeRoom(boxes, frame);
  assert.equal(overlaps(boxes, spots), 0);
  assert.ok(Math.hypot(spots[2]!.x - 600, spots[2]!.y - 300) < 0.1);
  assert.deepEqual(makeRoom(boxes, frame), spots);
});
