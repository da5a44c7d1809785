import assert from "node:assert/strict";
import { test } from "node:test";
import { bandwidth, bytes, count, money, range, seconds, share } from "../src/ui/format.ts";

// The same values in the terminal: src/hulk/units.py writes them so.
test("numbers are written as the terminal writes them", () => {
  assert.equal(seconds(412.4249954743995), "6.87 min");
  assert.equal(seconds(0.0736), "73.6 ms");
  assert.equal(seconds(1.08163), "1.08 s");
  assert.equal(seconds(59.99), "1.00 min");
  assert.equal(bytes(32 * 2 ** 30), "32.0 GiB");
  assert.equal(bytes(1230 * 2 ** 40), "1,230 TiB");
  assert.equal(bandwidth(3.125e9), "25.0 Gbit/s");
  assert.equal(count(5084.93), "5.08k");
  assert.equal(count(174604468224), "175B");
  assert.equal(money(14.3295), "$14.33");
  assert.equal(money(0.0057065), "$0.0057");
  assert.equal(money(1250), "$1,250.00");
});

test("shares and ranges", () => {
  assert.equal(share(0.45), "45%");
  assert.equal(share(0.0045), "0.45%");
  assert.equal(share(0), "0%");
  assert.equal(share(1), "100%");
  assert.equal(range(3, 3), "3");
  assert.equal(range(0, 8), "0–8");
});
