// One line that says what has happened, for eyes and for screen readers.
import { h } from "./dom.ts";

let line: HTMLElement | null = null;

export function statusLine(): HTMLElement {
  line = h("p", { class: "status-line", role: "status", "aria-live": "polite", testid: "status" });
  return line;
}

export type Tone = "plain" | "busy" | "bad";

export function announce(text: string, tone: Tone = "plain"): void {
  if (!line) return;
  line.textContent = text;
  line.dataset["tone"] = tone;
}
