// In the place of d3-transition: d3-zoom asks whether one is to be stopped. The map moves by its own frames, so there is none.
import { selection } from "d3-selection";

Object.assign(selection.prototype, {
  interrupt(this: unknown): unknown {
    return this;
  },
});

export function interrupt(): void {}
