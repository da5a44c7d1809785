// A live curve: uPlot in the page's colours.
import uPlot from "uplot";
import { h } from "../ui/dom.ts";
import { onThemeChange, themeColour } from "../ui/theme.ts";

export interface Line {
  readonly name: string;
  /** The custom property with its colour. */
  readonly colour: string;
  readonly dashed?: boolean;
}

export type Data = [number[], ...(number | null)[][]];

export class Curve {
  readonly element: HTMLElement;
  private readonly place = h("div", { class: "curve-place" });
  private plot: uPlot | null = null;
  private data: Data = [[], []];

  constructor(title: string, testid: string, private readonly lines: readonly Line[], private readonly format: (value: number) => string) {
    this.element = h("figure", { class: "curve", testid, role: "group", "aria-label": title }, h("h3", {}, title), this.place);
    new ResizeObserver(() => this.plot?.setSize(this.size)).observe(this.place);
    onThemeChange(() => this.rebuild());
  }

  draw(data: Data): void {
    this.data = data;
    if (this.plot) this.plot.setData(data);
    else this.rebuild();
  }

  private get size(): { width: number; height: number } {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    return { width: Math.max(200, this.place.clientWidth), height: 13 * rem };
  }

  private rebuild(): void {
    this.plot?.destroy();
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const font = `${0.8 * rem}px ${getComputedStyle(document.body).fontFamily}`;
    const axis = { stroke: themeColour("--ink-soft"), grid: { stroke: themeColour("--line"), width: 1 }, ticks: { stroke: themeColour("--line"), width: 1 }, font };
    this.plot = new uPlot({
      ...this.size,
      scales: { x: { time: false } },
      cursor: { points: { size: 7 } },
      axes: [{ ...axis }, { ...axis, size: 5 * rem, values: (_, values) => values.map((value) => this.format(value)) }],
      series: [{ label: "step" }, ...this.lines.map((line) => ({
        label: line.name, stroke: themeColour(line.colour), width: 2, dash: line.dashed ? [6, 5] : [], points: { show: false },
        value: (_: uPlot, value: number | null) => (value === null || value === undefined ? "–" : this.format(value)),
      }))],
    }, this.data, this.place);
  }
}
