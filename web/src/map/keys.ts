// Keyboard on the map: one stop for Tab, arrows to the nearest thing in a direction, Enter or Space to choose it.

type Direction = readonly [number, number];

const ARROWS: Readonly<Record<string, Direction>> = {
  ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1],
};

interface Place {
  readonly x: number;
  readonly y: number;
}

/** The index of the place that lies nearest in a direction; going sideways counts twice. */
export function nearest(places: readonly Place[], from: Place, [dx, dy]: Direction): number {
  let best = -1;
  let least = Infinity;
  places.forEach((place, index) => {
    const x = place.x - from.x;
    const y = place.y - from.y;
    const ahead = x * dx + y * dy;
    if (ahead <= 0.5) return;
    const cost = ahead + 2 * Math.abs(x * dy + y * dx);
    if (cost < least) {
      least = cost;
      best = index;
    }
  });
  return best;
}

function middle(element: Element): Place {
  const box = element.getBoundingClientRect();
  return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
}

/** Lets arrows move the focus among the elements of a figure that can be picked. */
export function spatialKeys(figure: SVGSVGElement, selector: string, choose: (element: SVGElement) => void): void {
  const shown = (): SVGElement[] =>
    [...figure.querySelectorAll<SVGElement>(selector)].filter((element) => element.getClientRects().length > 0);
  figure.addEventListener("keydown", (event) => {
    const here = (event.target as Element).closest<SVGElement>(selector);
    if (here && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      choose(here);
      return;
    }
    const direction = ARROWS[event.key];
    if (!direction) return;
    event.preventDefault();
    const all = shown();
    const from = here ? middle(here) : middle(figure);
    const others = all.filter((element) => element !== here);
    // The first arrow goes to a machine or a region; lines between them come after.
    const next = here ? others[nearest(others.map(middle), from, direction)] : others.find((element) => !element.matches(".link"));
    next?.focus({ preventScroll: true });
  });
}
