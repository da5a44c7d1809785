// In the place of d3-interpolate: the page's scales lead from numbers to numbers, never to colours or texts.
type Between = (t: number) => number;

export function interpolateNumber(a: number, b: number): Between {
  return (t) => a * (1 - t) + b * t;
}

export const interpolate = interpolateNumber;

export function interpolateRound(a: number, b: number): Between {
  return (t) => Math.round(a * (1 - t) + b * t);
}

/** Asked for by transitions of a zoom alone, and there are none. */
export function interpolateZoom(_: unknown, to: unknown): () => unknown {
  return () => to;
}

/** Asked for by diverging scales alone, and there are none. */
export const piecewise = null;
