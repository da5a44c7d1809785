// A ring whose arcs are shares: the machines of a region by job.

export interface Slice {
  readonly colour: string;
  readonly amount: number;
}

function point(radius: number, turn: number): string {
  const angle = 2 * Math.PI * turn - Math.PI / 2;
  return `${(radius * Math.cos(angle)).toFixed(2)} ${(radius * Math.sin(angle)).toFixed(2)}`;
}

/** The outline of a ring's part between two turns (0 to 1, clockwise from the top). */
export function ringPart(inner: number, outer: number, from: number, to: number): string {
  // An arc from a point to itself draws nothing: a whole ring is two halves.
  if (to - from >= 0.99999) return ringPart(inner, outer, from, from + 0.5) + ringPart(inner, outer, from + 0.5, from + 0.99998);
  const large = to - from > 0.5 ? 1 : 0;
  return `M${point(outer, from)}A${outer} ${outer} 0 ${large} 1 ${point(outer, to)}`
    + `L${point(inner, to)}A${inner} ${inner} 0 ${large} 0 ${point(inner, from)}Z`;
}

export function ring(slices: readonly Slice[], inner: number, outer: number): { colour: string; d: string }[] {
  const whole = slices.reduce((sum, slice) => sum + slice.amount, 0);
  let at = 0;
  return slices.filter((slice) => slice.amount > 0).map((slice) => {
    const from = at;
    at += slice.amount / whole;
    return { colour: slice.colour, d: ringPart(inner, outer, from, at) };
  });
}
