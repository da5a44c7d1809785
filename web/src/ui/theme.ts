// Light or dark: the system's choice until a person makes another.
import { h, icon } from "./dom.ts";

const KEY = "hulk-theme";
type Theme = "light" | "dark";

function remembered(): Theme | null {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : null;
  } catch {
    return null; // a page opened from disk may have no storage
  }
}

function currentTheme(): Theme {
  return document.documentElement.dataset["theme"] === "dark" ? "dark" : "light";
}

const listeners = new Set<() => void>();

function use(theme: Theme): void {
  document.documentElement.dataset["theme"] = theme;
  listeners.forEach((tell) => tell());
}

/** Canvases read their colours once; they ask here to be told when these change. */
export function onThemeChange(listener: () => void): void {
  listeners.add(listener);
}

export function startTheme(): void {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const choice = (): Theme => remembered() ?? (system.matches ? "dark" : "light");
  use(choice());
  system.addEventListener("change", () => use(choice()));
}

export function themeButton(): HTMLButtonElement {
  const button = h("button", { type: "button", class: "button icon-button", testid: "theme-toggle" },
    icon("M12 3a9 9 0 1 0 0 18z M12 3a9 9 0 0 1 0 18"));
  const name = (): void => {
    const other = currentTheme() === "dark" ? "light" : "dark";
    button.setAttribute("aria-label", `Switch to ${other} colours`);
    button.title = `Switch to ${other} colours`;
  };
  button.addEventListener("click", () => {
    const next: Theme = currentTheme() === "dark" ? "light" : "dark";
    try {
      localStorage.setItem(KEY, next);
    } catch {
      // not remembered, but switched
    }
    use(next);
  });
  name();
  onThemeChange(name);
  return button;
}

/** The value of a custom property of the present theme, for canvases. */
export function themeColour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
