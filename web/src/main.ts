// Where the page begins: a report has its data inside, a server is asked for it.
import type { Topology } from "topojson-specification";
import type { PageData } from "./contract.ts";
import { Page } from "./page.ts";
import { startReport } from "./report.ts";
import { startServe } from "./live/serve.ts";
import { startWatch } from "./live/watch.ts";
import { announce } from "./ui/announce.ts";
import { h } from "./ui/dom.ts";
import { startTheme } from "./ui/theme.ts";

declare global {
  interface Window {
    hulkMapFrames?: (milliseconds: number) => Promise<number>;
  }
}

async function start(): Promise<void> {
  startTheme();
  const root = document.getElementById("page");
  if (!root) throw new Error("the page has no place to draw on");
  const data = JSON.parse(document.getElementById("hulk-data")?.textContent || "{}") as PageData;
  const land = (data.land ?? await (await fetch("/land.json")).json()) as Topology;
  const page = new Page(root, land);
  window.hulkMapFrames = (milliseconds) => page.frames(milliseconds);
  if (data.mode === "report" && data.document) startReport(page, data.document);
  else if (data.mode === "live") await startWatch(page);
  else await startServe(page);
}

start().catch((problem: unknown) => {
  const text = problem instanceof Error ? problem.message : String(problem);
  announce(text, "bad");
  if (!document.querySelector(".topbar")) document.body.prepend(h("p", { class: "problem", role: "alert", "data-testid": "error" }, text));
});
