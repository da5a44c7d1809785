// Files that the page makes itself, and menus of files that it or the server makes.
import { h } from "./dom.ts";

/** Gives a text to the browser's downloads. */
export function saveText(name: string, text: string, type = "application/json"): void {
  saveBlob(name, new Blob([text], { type }));
}

export function saveBlob(name: string, blob: Blob): void {
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A button that opens a list; a click elsewhere or Escape closes it. */
export function menu(name: string, testid: string, items: readonly HTMLElement[]): HTMLDetailsElement {
  const list = h("details", { class: "menu" },
    h("summary", { class: "button", testid }, name), h("div", { class: "menu-list" }, ...items));
  list.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    list.open = false;
    list.querySelector("summary")?.focus();
  });
  document.addEventListener("click", (event) => {
    if (!list.contains(event.target as Node) || (event.target as Element).closest(".menu-list button, .menu-list a")) list.open = false;
  });
  return list;
}
