import assert from "node:assert/strict";
import { test } from "node:test";
import type { JobTimelineView } from "../src/contract.ts";
import { panView, readTimeline, rowIdle, rowSums, spanAt, zoomView } from "../src/timeline/model.ts";
import { timeTicks } from "../src/timeline/draw.ts";
import { traceOf } from "../src/trace.ts";

const row = { pipeline: 0, slot: 1, machine: "rome-1", gpus: [0, 1], micro: [0, 0, 1] };
const view: JobTimelineView = {
  step: 1, unit: 0.1, resolution: 0, in_full: [0, 0], spans: 6, rows_left_out: 0, rows: [
    { ...row, lane: "compute", at: [0, 2, 3, 4, 8, 1], kind: "fbu" },
    { ...row, lane: "network", at: [0, 9, 1, 1, 2, 1], kind: "ttt" },
  ],
};

test("spans become seconds, and what is left is idle", () => {
  const { rows } = readTimeline("job", view);
  assert.ok(Math.abs(rowSums(rows[0]!).get("b")! - 0.4) < 1e-12);
  assert.ok(Math.abs(rowIdle(rows[0]!, 1) - 0.3) < 1e-12);
});

test("a span is found although others overlap it", () => {
  const { rows } = readTimeline("job", view);
  assert.equal(spanAt(rows[0]!, 0.5), 1);
  assert.equal(spanAt(rows[0]!, 0.25), -1);
  assert.equal(spanAt(rows[1]!, 0.85), 0);
  assert.equal(spanAt(rows[1]!, 0.15), 1);
});

test("a view never leaves the step", () => {
  const whole = { from: 0, to: 10 };
  const near = zoomView(whole, 10, 9, 4);
  assert.ok(Math.abs(near.to - near.from - 2.5) < 1e-12 && near.to <= 10);
  assert.deepEqual(panView(near, 10, 100), { from: 7.5, to: 10 });
  assert.deepEqual(zoomView(near, 10, 8, 0.001), whole);
});

test("ticks are round in the unit they are written in", () => {
  assert.deepEqual(timeTicks({ from: 0, to: 360 }, 6), [0, 60, 120, 180, 240, 300, 360]);
});

test("the trace has every span with its name", () => {
  const events = traceOf({ job: view }).traceEvents;
  const spans = events.filter((event) => event.ph === "X");
  assert.equal(spans.length, 6);
  assert.equal(spans[1]!.name, "backward");
  assert.ok(Math.abs(spans[1]!.ts! - 300000) < 1e-6);
});
