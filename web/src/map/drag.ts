// Drag a machine from the map onto a job. The same can be done by keyboard in the panel of the machine.
import { h } from "../ui/dom.ts";

const FAR = 5; // pixels before a press becomes a drag

export interface DragOptions {
  /** The machine under an event, or null. */
  readonly machineOf: (target: Element) => string | null;
  readonly drop: (machine: string, job: string | null) => void;
  readonly enabled: () => boolean;
}

function targetAt(x: number, y: number): HTMLElement | null {
  return document.elementFromPoint(x, y)?.closest<HTMLElement>("[data-drop-job]") ?? null;
}

export function dragMachines(figure: SVGSVGElement, options: DragOptions): void {
  figure.addEventListener("pointerdown", (down) => {
    if (!options.enabled() || down.button !== 0) return;
    const machine = options.machineOf(down.target as Element);
    if (machine === null) return;
    let ghost: HTMLElement | null = null;
    let over: HTMLElement | null = null;

    const move = (event: PointerEvent): void => {
      if (!ghost) {
        if (Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) < FAR) return;
        ghost = h("div", { class: "drag-ghost", "aria-hidden": "true" }, machine);
        document.body.append(ghost);
        document.body.classList.add("dragging-machine");
      }
      ghost.style.transform = `translate(${event.clientX + 12}px, ${event.clientY + 12}px)`;
      const next = targetAt(event.clientX, event.clientY);
      if (next !== over) {
        over?.classList.remove("drop-here");
        next?.classList.add("drop-here");
        over = next;
      }
    };
    const stop = (event: PointerEvent): void => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", stop);
      removeEventListener("pointercancel", stop);
      over?.classList.remove("drop-here");
      document.body.classList.remove("dragging-machine");
      if (!ghost) return;
      ghost.remove();
      const target = event.type === "pointerup" ? targetAt(event.clientX, event.clientY) : null;
      if (target) options.drop(machine, target.dataset["dropJob"] || null);
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", stop);
    addEventListener("pointercancel", stop);
  });
}
