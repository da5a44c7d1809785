import type { PartView, StageView } from "./contract.ts";

/** A stage's GPUs, machine by machine. */
export function partsOf(stage: StageView): PartView[] {
  return [{ machine: stage.machine, gpus: stage.gpus }, ...(stage.beside ?? [])];
}
