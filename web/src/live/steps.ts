// Where a person has been: plans, and what was tried on them. Undo goes one step back, redo forward again.
import type { Change } from "../contract.ts";

export interface Place {
  readonly plan: string;
  readonly changes: readonly Change[];
}

export class Steps {
  private past: Place[] = [];
  private future: Place[] = [];
  private now: Place | null = null;

  get place(): Place | null {
    return this.now;
  }

  /** Goes to a new place. What was tried on the plan before is forgotten as soon as it has become a plan of its own. */
  go(place: Place): void {
    const before = this.now;
    if (before) {
      if (place.plan === before.plan) {
        this.past.push(before);
      } else {
        this.past = this.past.filter((old) => old.plan !== before.plan || old.changes.length === 0);
        const last = this.past[this.past.length - 1];
        if (last?.plan !== before.plan) this.past.push({ plan: before.plan, changes: [] });
      }
    }
    this.now = place;
    this.future = [];
  }

  /** The place before, or the parent of the plan where nothing else is known. Null: there is none. */
  undo(parent: string | null): Place | null {
    const before = this.past.pop() ?? (parent === null ? null : { plan: parent, changes: [] });
    if (!before || !this.now) return null;
    this.future.push(this.now);
    this.now = before;
    return before;
  }

  redo(): Place | null {
    const next = this.future.pop();
    if (!next || !this.now) return null;
    this.past.push(this.now);
    this.now = next;
    return next;
  }

  canUndo(parent: string | null): boolean {
    return this.now !== null && (this.past.length > 0 || parent !== null);
  }

  get canRedo(): boolean {
    return this.future.length > 0;
  }

  /** Forgets a plan that was deleted. */
  forget(plan: string): void {
    this.past = this.past.filter((place) => place.plan !== plan);
    this.future = this.future.filter((place) => place.plan !== plan);
  }
}

/** A change in a few words, for its chip. */
export function changeWords(change: Change): string {
  switch (change.kind) {
    case "lose": return `${change.machine} lost`;
    case "move": return `${change.machine} to ${change.job ?? "idle"}`;
    case "join": return "machines added";
    case "link": return `${change.a} – ${change.b} ${"factor" in change ? `×${change.factor}` : change.setting}`;
  }
}
