// The files of a plan that the server makes: plan, report, trace, launch files.
import type { Catalogue } from "../contract.ts";
import { announce } from "../ui/announce.ts";
import { h } from "../ui/dom.ts";
import { menu, saveBlob } from "../ui/download.ts";
import { file } from "./api.ts";

export function fileMenu(catalogue: Catalogue, plan: () => string | null, fail: (error: unknown) => void): HTMLElement {
  const fetchIt = async (name: string, path: string): Promise<void> => {
    const id = plan();
    if (id === null) return announce("Plan first, then there is something to download");
    announce(`${name} is being made…`, "busy");
    try {
      const made = await file(`/api/plans/${encodeURIComponent(id)}/${path}`);
      saveBlob(made.name, made.blob);
      announce(`${name}: ${made.name}`);
    } catch (error) {
      fail(error);
    }
  };
  const item = (testid: string, name: string, path: string): HTMLElement =>
    h("button", { type: "button", testid, on: { click: () => void fetchIt(name, path) } }, name);
  const target = h("select", { class: "select", testid: "export-target", "aria-label": "Launcher", on: { click: (event: Event) => event.stopPropagation() } },
    ...catalogue.targets.map((one) => h("option", { value: one.name, title: one.about }, one.name)));
  return menu("Download", "download-menu", [
    item("download-plan", "Plan file (JSON)", "plan.json"),
    item("download-report", "Report (one HTML file)", "report.html"),
    item("download-trace", "Timeline for Perfetto (JSON)", "trace.json"),
    h("div", { class: "menu-row" }, target,
      h("button", { type: "button", class: "button", testid: "download-export",
        on: { click: () => void fetchIt("Launch files", `export.zip?to=${encodeURIComponent(target.value)}`) } }, "Launch files")),
  ]);
}
