import assert from "node:assert/strict";
import { test } from "node:test";
import { centreLongitude } from "../src/map/projection.ts";
import { linkKind } from "../src/map/from_document.ts";
import { nearest } from "../src/map/keys.ts";
import { ring } from "../src/map/donut.ts";
import { shareBreaks, shareColour } from "../src/map/link_lines.ts";
import { longestShown } from "../src/sections/comparison.ts";
import { inkOn, letters } from "../src/ui/palette.ts";
import { asTsv, sorted, type Column } from "../src/ui/table.ts";

test("the map's edge lies where nobody is", () => {
  assert.equal(centreLongitude([-120, -48, 2, 13, 77, 116, 140]), 10);
  const pacific = centreLongitude([-120, 140, 175, -160]);
  assert.ok(Math.abs(pacific) > 120, String(pacific));
});

test("a link is estimated where one of its figures is", () => {
  const link = { a: "rome", b: "paris", latency: 0.01, bandwidth: 1e8, trunk: null };
  assert.equal(linkKind({ ...link, origin: "measured", bandwidth_origin: "measured" }), "measured");
  assert.equal(linkKind({ ...link, origin: "measured", bandwidth_origin: "estimated" }), "estimated");
  assert.equal(linkKind({ ...link, origin: "estimated", bandwidth_origin: "measured" }), "estimated");
  assert.equal(linkKind({ ...link, latency: null, origin: "blocked", bandwidth_origin: "blocked" }), "blocked");
  assert.equal(linkKind(undefined), "estimated");
});

test("arrow keys go to the nearest thing ahead", () => {
  const places = [{ x: 10, y: 0 }, { x: 30, y: 0 }, { x: 5, y: 20 }];
  assert.equal(nearest(places, { x: 0, y: 0 }, [1, 0]), 0);
  assert.equal(nearest(places, { x: 0, y: 0 }, [0, 1]), 2);
  assert.equal(nearest(places, { x: 0, y: 0 }, [-1, 0]), -1);
});

test("a ring has one part for each job that is there", () => {
  assert.equal(ring([{ colour: "a", amount: 3 }, { colour: "b", amount: 0 }, { colour: "c", amount: 1 }], 5, 10).length, 2);
  assert.match(ring([{ colour: "a", amount: 1 }], 5, 10)[0]!.d, /A/);
});

test("shares fall into classes with round ends", () => {
  const breaks = shareBreaks([0.001, 0.013]);
  assert.ok(breaks.length >= 2 && breaks.length <= 4);
  assert.equal(shareColour(0, breaks), 0);
  assert.equal(shareColour(0.013, breaks), 4);
  assert.equal(shareColour(0, []), 0);
});

test("letters remind of names and differ", () => {
  assert.deepEqual(letters(["opt-175b", "t5-11b", "gpt2-xl", "bert-large"]), ["O", "T", "G", "B"]);
  const many = letters(Array.from({ length: 30 }, () => "same"));
  assert.equal(new Set(many).size, 30);
  assert.equal(inkOn("#f0e442"), "#111111");
});

test("one slow system does not hide the others' bars", () => {
  assert.equal(longestShown([10, 40, 1e6, null]), 40);
});

test("tables sort numbers by size and names as people do, and copy as rows of cells", () => {
  const columns: Column<{ name: string; n: number }>[] = [
    { name: "name", text: (row) => row.name }, { name: "n", text: (row) => `${row.n} s`, by: (row) => row.n },
  ];
  const rows = [{ name: "rome-10", n: 2 }, { name: "rome-2", n: 10 }];
  assert.equal(sorted(rows, columns[0]!, 1)[0]!.name, "rome-2");
  assert.equal(sorted(rows, columns[1]!, -1)[0]!.n, 10);
  assert.equal(asTsv([{ name: "a\tb\n<img>", n: 1 }], columns), "name\tn\na b <img>\t1 s\n");
});
