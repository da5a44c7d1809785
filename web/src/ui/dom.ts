// Elements without markup: every string becomes a text node or an attribute, so that a name out of a file can never be more
// than text. Nothing in this page uses innerHTML.

export type Child = Node | string | number | null | undefined | false;
type Listener = (event: never) => void;

export interface Attributes {
  class?: string | false | null;
  testid?: string;
  on?: Partial<Record<keyof HTMLElementEventMap, Listener>>;
  [name: string]: unknown;
}

const SVG = "http://www.w3.org/2000/svg";

function fill<E extends Element>(element: E, attributes: Attributes, children: readonly Child[]): E {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value as Record<string, Listener>)) {
        element.addEventListener(event, listener as EventListener);
      }
    } else if (name === "testid") {
      element.setAttribute("data-testid", String(value));
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  append(element, children);
  return element;
}

function append(parent: Element, children: readonly Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : String(child));
  }
}

/** An HTML element with attributes and children. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Attributes = {}, ...children: Child[]
): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element with attributes and children. */
export function s<K extends keyof SVGElementTagNameMap>(
  tag: K, attributes: Attributes = {}, ...children: Child[]
): SVGElementTagNameMap[K] {
  return fill(document.createElementNS(SVG, tag) as SVGElementTagNameMap[K], attributes, children);
}

/** Replaces what an element holds. */
export function refill(parent: Element, ...children: Child[]): void {
  parent.replaceChildren();
  append(parent, children);
}

/** Replaces what an element holds; the focus stays on the part with the same test id and job, if there is one again. */
export function refillKeepingFocus(parent: Element, ...children: Child[]): void {
  const focused = parent.contains(document.activeElement) ? document.activeElement as HTMLElement : null;
  const [id, job] = [focused?.dataset["testid"], focused?.dataset["job"]];
  refill(parent, ...children);
  if (!focused || id === undefined) return;
  const again = [...parent.querySelectorAll<HTMLElement>(`[data-testid="${CSS.escape(id)}"]`)].find((one) => one.dataset["job"] === job);
  again?.focus({ preventScroll: true });
}

/** Sets a length through the CSSOM, which a policy against inline styles allows. */
export function percent(element: HTMLElement, property: "width" | "left", share: number): void {
  element.style[property] = `${(100 * Math.max(0, Math.min(1, share))).toFixed(3)}%`;
}

/** A stroke of a small icon, drawn on 24 by 24. */
export function icon(...paths: string[]): SVGSVGElement {
  return s("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" },
    ...paths.map((d) => s("path", { d })));
}
