// In the place of d3-format: only a scale's `tickFormat` asks for it, and the page writes its numbers itself (ui/format.ts).
function unused(): never {
  throw new Error("the page writes its numbers itself");
}

export const format = unused;
export const formatPrefix = unused;
export const formatSpecifier = unused;
export const precisionFixed = unused;
export const precisionPrefix = unused;
export const precisionRound = unused;
