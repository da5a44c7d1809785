// A table that can be sorted by any column and copied as tab-separated text.
import { h, icon, refill, type Child } from "./dom.ts";
import { announce } from "./announce.ts";

export interface Column<Row> {
  readonly name: string;
  /** What is shown, and copied. */
  readonly text: (row: Row) => string;
  /** What it is sorted by, where that is not the text. */
  readonly by?: (row: Row) => number | string;
  readonly numeric?: boolean;
  /** Something richer than the text, with the same content. */
  readonly show?: (row: Row) => Child;
}

export interface TableOptions<Row> {
  readonly title: string;
  readonly testid: string;
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  readonly onRow?: (row: Row) => void;
  /** How many rows are shown before a button asks for the rest. */
  readonly first?: number;
}

type Direction = 1 | -1;

/** Numbers by size, texts by the alphabet with numbers inside them by size (rome-2 before rome-10); the order of equals stays. */
export function sorted<Row>(rows: readonly Row[], column: Column<Row>, direction: Direction): Row[] {
  const key = column.by ?? column.text;
  return [...rows].sort((a, b) => {
    const left = key(a);
    const right = key(b);
    if (typeof left === "number" && typeof right === "number") return direction * (left - right);
    return direction * String(left).localeCompare(String(right), "en", { numeric: true });
  });
}

/** Tabs and line breaks inside a cell become spaces, so that a row stays a row. */
export function asTsv<Row>(rows: readonly Row[], columns: readonly Column<Row>[]): string {
  const cell = (text: string): string => text.replace(/[\t\r\n]+/g, " ");
  const named = columns.filter((column) => column.name !== "");
  const lines = [named.map((column) => cell(column.name)), ...rows.map((row) => named.map((c) => cell(c.text(row))))];
  return lines.map((line) => line.join("\t")).join("\n") + "\n";
}

async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Pages opened from disk may not use the clipboard: the old way, by a selection.
    const area = h("textarea", { class: "offscreen", readonly: true, "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

export interface TableView<Row> {
  readonly element: HTMLElement;
  /** Other rows in the same order of columns, sorted as a person has chosen. */
  readonly update: (rows: readonly Row[]) => void;
}

export function table<Row>(options: TableOptions<Row>): HTMLElement {
  return tableView(options).element;
}

export function tableView<Row>(options: TableOptions<Row>): TableView<Row> {
  const { columns } = options;
  let given = options.rows;
  let rows = [...given];
  let sortedBy = -1;
  let direction: Direction = 1;
  let shown = options.first ?? Infinity;

  const body = h("tbody");
  const heads = columns.map((column, index) => h("th", { scope: "col", class: column.numeric && "number" },
    column.name !== "" && h("button", { type: "button", class: "sort", on: { click: () => sortBy(index) } },
      column.name, h("span", { class: "arrow", "aria-hidden": "true" }))));
  const more = h("button", { type: "button", class: "button", on: { click: () => { shown = Infinity; draw(); } } });
  const foot = h("p", { class: "more" }, more);
  const copyButton = h("button", {
    type: "button", class: "button quiet", testid: `copy-${options.testid}`,
    on: { click: async () => {
      const done = await copy(asTsv(rows, columns));
      announce(done ? `${options.title}: ${rows.length} rows copied` : "The browser does not let this page copy");
    } },
  }, icon("M9 9h11v11H9z M5 15H4V4h11v1"), "Copy");

  function sortBy(index: number): void {
    const column = columns[index];
    if (!column) return;
    direction = sortedBy === index ? (direction === 1 ? -1 : 1) : column.numeric ? -1 : 1;
    sortedBy = index;
    rows = sorted(given, column, direction);
    heads.forEach((head, at) => {
      if (at === index) head.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    draw();
  }

  function line(row: Row): HTMLTableRowElement {
    const cells = columns.map((column, index) => {
      const content = column.show ? column.show(row) : column.text(row);
      const attributes = { class: column.numeric && "number" };
      return index === 0 ? h("th", { scope: "row", ...attributes }, content) : h("td", attributes, content);
    });
    const element = h("tr", {}, ...cells);
    const { onRow } = options;
    if (onRow) {
      element.className = "clickable";
      element.addEventListener("click", () => onRow(row));
    }
    return element;
  }

  function draw(): void {
    refill(body, ...rows.slice(0, shown).map(line));
    foot.hidden = rows.length <= shown;
    more.textContent = `Show all ${rows.length.toLocaleString("en")} rows`;
  }

  function update(others: readonly Row[]): void {
    given = others;
    const column = columns[sortedBy];
    rows = column ? sorted(given, column, direction) : [...given];
    draw();
  }

  draw();
  const element = h("div", { class: "table-box", testid: options.testid },
    h("div", { class: "table-head" }, h("h3", {}, options.title), copyButton),
    h("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": options.title },
      h("table", {}, h("thead", {}, h("tr", {}, ...heads)), body)),
    foot);
  return { element, update };
}
