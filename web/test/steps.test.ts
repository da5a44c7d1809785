import assert from "node:assert/strict";
import { test } from "node:test";
import type { Change } from "../src/contract.ts";
import { changeWords, Steps } from "../src/live/steps.ts";

const lose = (machine: string): Change => ({ kind: "lose", machine });

test("undo takes back one change at a time", () => {
  const steps = new Steps();
  steps.go({ plan: "a", changes: [] });
  steps.go({ plan: "a", changes: [lose("x")] });
  steps.go({ plan: "a", changes: [lose("x"), lose("y")] });
  assert.equal(steps.undo(null)?.changes.length, 1);
  assert.equal(steps.undo(null)?.changes.length, 0);
  assert.equal(steps.undo(null), null);
  assert.equal(steps.redo()?.changes.length, 1);
  assert.ok(steps.canRedo);
});

test("after planning again, undo goes to the plan before, without what was tried on it", () => {
  const steps = new Steps();
  steps.go({ plan: "a", changes: [] });
  steps.go({ plan: "a", changes: [lose("x")] });
  steps.go({ plan: "b", changes: [] });
  assert.deepEqual(steps.undo("a"), { plan: "a", changes: [] });
  assert.equal(steps.canUndo(null), false);
  assert.deepEqual(steps.redo(), { plan: "b", changes: [] });
});

test("a plan that was opened alone goes back to its parent", () => {
  const steps = new Steps();
  steps.go({ plan: "b", changes: [] });
  assert.deepEqual(steps.undo("a"), { plan: "a", changes: [] });
});

test("changes in words", () => {
  assert.equal(changeWords({ kind: "move", machine: "rome-1", job: null }), "rome-1 to idle");
  assert.equal(changeWords({ kind: "link", a: "rome", b: "tokyo", factor: 0.1 }), "rome – tokyo ×0.1");
});
