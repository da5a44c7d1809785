// The page of a report: a file on its own, without a server.
import type { HulkDocument } from "./contract.ts";
import type { Page } from "./page.ts";
import { h } from "./ui/dom.ts";
import { menu, saveText } from "./ui/download.ts";
import { traceOf } from "./trace.ts";

export function startReport(page: Page, document: HulkDocument): void {
  const { timeline } = document;
  const item = (testid: string, name: string, act: () => void): HTMLElement =>
    h("button", { type: "button", testid, on: { click: act } }, name);
  const items = [item("download-plan", "Plan file (JSON)", () => saveText("plan.json", `${JSON.stringify(document.plan, null, 2)}\n`))];
  if (timeline) items.push(item("download-trace", "Timeline for Perfetto (JSON)", () => saveText("trace.json", JSON.stringify(traceOf(timeline)))));
  page.downloads.append(menu("Download", "download-menu", items));
  page.show(document);
}
