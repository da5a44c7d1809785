// What the signs of the map mean.
import { h, s } from "../ui/dom.ts";
import { bytes, share } from "../ui/format.ts";
import type { Marks } from "../ui/palette.ts";
import { badge } from "../ui/badge.ts";
import { shareBreaks, shareColour } from "./link_lines.ts";
import { FEW, SPENT_NAMES, type Scene } from "./scene.ts";

const item = (...children: (Node | string)[]): HTMLElement => h("span", { class: "legend-item" }, ...children);

function line(kind: string, width = 2.5): SVGSVGElement {
  return s("svg", { width: 34, viewBox: "0 0 34 16", "aria-hidden": "true" },
    s("path", { class: `line ${kind}`, d: "M2 8H32", "stroke-width": width }),
    kind === "blocked" && s("path", { class: "link-cross", d: "M13 4L21 12M21 4L13 12" }));
}

function shareKey(scene: Scene): HTMLElement | null {
  const breaks = shareBreaks(scene.links.map((link) => link.share));
  if (breaks.length === 0) return null;
  const ends = [...breaks, null];
  return h("span", { class: "legend-group" }, "colour: share of the step", ...ends.map((end, index) => {
    const from = breaks[index - 1] ?? 0;
    const name = end === null ? `from ${share(from)}` : `to ${share(end)}`;
    return item(s("svg", { width: 12, viewBox: "0 0 12 16", "aria-hidden": "true" },
      s("rect", { class: `share-${shareColour(from, breaks)}`, y: 2, width: 12, height: 12, rx: 2 })), name);
  }));
}

export function legend(scene: Scene, marks: Marks, blockedShown: boolean, onBlocked: (shown: boolean) => void): HTMLElement {
  const kinds = new Set(scene.links.map((link) => link.kind));
  const memories = scene.regions.flatMap((region) => region.machines.map((machine) => machine.memory));
  const largest = Math.max(0, ...memories);
  const traffic = scene.links.some((link) => link.bytes > 0);
  const idle = scene.regions.some((region) => region.machines.some((machine) => machine.job === null));
  const blocked = h("input", { type: "checkbox", testid: "show-blocked" });
  blocked.checked = blockedShown;
  blocked.addEventListener("change", () => onBlocked(blocked.checked));
  return h("div", { class: "legend", testid: "legend" },
    h("span", { class: "legend-group" },
      ...[...marks].map(([job, mark]) => item(badge(mark), job)),
      idle && item(h("span", { class: "badge idle-badge", "aria-hidden": "true" }), "idle")),
    memories.length > FEW && item(s("svg", { width: 18, viewBox: "0 0 18 18", "aria-hidden": "true" },
      s("circle", { class: "ring-key", cx: 9, cy: 9, r: 6.5 })), "ring: a region's machines by job; zoom in for each"),
    scene.regions.some((region) => region.machines.some((machine) => machine.spends))
      && h("span", { class: "legend-group" }, "ring, measured:", ...(["busy", "waiting"] as const).map((part) =>
        item(h("i", { class: `swatch spent-${part}` }), SPENT_NAMES[part]))),
    largest > 0 && h("span", { class: "legend-group" },
      item(s("svg", { width: 40, viewBox: "0 0 40 20", "aria-hidden": "true" },
        s("circle", { class: "size", cx: 8, cy: 10, r: 5 }), s("circle", { class: "size", cx: 28, cy: 10, r: 9.5 })),
      `dot: memory, up to ${bytes(largest)}`)),
    traffic && h("span", { class: "legend-group" }, item(line("", 1.2), line("", 6), "width: bytes a step")),
    traffic && shareKey(scene),
    kinds.has("estimated") && item(line("estimated"), "latency or bandwidth estimated"),
    kinds.has("blocked") && h("label", { class: "check" }, blocked, line("blocked", 1.8), "blocked"));
}
