// A dialog in which a file is written, pasted or opened.
import { h } from "../ui/dom.ts";
import { Problem } from "./api.ts";

export interface EditorOptions {
  readonly title: string;
  readonly testid: string;
  readonly text: string;
  readonly help: string;
  readonly action: string;
  /** Takes the text; what it throws is shown and the dialog stays. */
  readonly use: (text: string) => Promise<void>;
  /** The most bytes that the server takes. */
  readonly limit: number;
}

export function openEditor(options: EditorOptions): void {
  const area = h("textarea", { "aria-label": options.title, spellcheck: "false", testid: `${options.testid}-text` });
  area.value = options.text;
  const problem = h("p", { class: "problem", role: "alert", testid: `${options.testid}-problem` });
  problem.hidden = true;
  const fail = (text: string): void => {
    problem.textContent = text;
    problem.hidden = false;
  };
  const opened = h("input", { type: "file", class: "offscreen", accept: ".yaml,.yml,.json,text/*", testid: `${options.testid}-file`, tabindex: "-1", "aria-label": "File to open" });
  opened.addEventListener("change", async () => {
    const chosen = opened.files?.[0];
    if (!chosen) return;
    if (chosen.size > options.limit) return fail(`${chosen.name} is larger than the ${options.limit.toLocaleString("en-US")} bytes that the server takes`);
    area.value = await chosen.text();
  });
  const submit = h("button", { type: "submit", class: "button primary", testid: `${options.testid}-use` }, options.action);
  const form = h("form", { method: "dialog" },
    h("h2", {}, options.title), h("p", { class: "soft small" }, options.help), area, problem,
    h("div", { class: "actions" },
      h("button", { type: "button", class: "button grow", on: { click: () => opened.click() } }, "Open a file…"), opened,
      h("button", { type: "button", class: "button", on: { click: () => dialog.close() } }, "Cancel"), submit));
  const dialog = h("dialog", { class: "dialog", testid: options.testid, "aria-label": options.title }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    submit.disabled = true;
    try {
      await options.use(area.value);
      dialog.close();
    } catch (error) {
      fail(error instanceof Problem ? error.text : String(error));
    } finally {
      submit.disabled = false;
    }
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  area.focus();
}
