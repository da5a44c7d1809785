// Where dots stand around their region, and how regions that are near each other make room.

export interface Spot {
  readonly x: number;
  readonly y: number;
}

const SPIRAL: Spot[] = [{ x: 0, y: 0 }];
const AXES = [[1, 0], [0.5, 0.8660254], [-0.5, 0.8660254], [-1, 0], [-0.5, -0.8660254], [0.5, -0.8660254]] as const;

/** Places of a honeycomb with distance 1, ring by ring from the middle. */
export function honeycomb(n: number): readonly Spot[] {
  for (let ring = 1; SPIRAL.length < n; ring += 1) {
    let x = ring * AXES[4][0];
    let y = ring * AXES[4][1];
    for (const [dx, dy] of AXES) {
      for (let step = 0; step < ring; step += 1) {
        SPIRAL.push({ x, y });
        x += dx;
        y += dy;
      }
    }
  }
  return SPIRAL.slice(0, n);
}

export interface Packed {
  readonly spots: readonly Spot[];
  /** Reach of the dots from the middle. */
  readonly radius: number;
}

/** Dots of radii that differ, none over another, middle of mass at the origin. Few get a figure of their own size. */
export function packDots(radii: readonly number[], gap: number): Packed {
  const largest = Math.max(0, ...radii);
  const pitch = 2 * largest + gap;
  const cells = honeycomb(radii.length);
  const middle = cells.reduce((sum, cell) => ({ x: sum.x + cell.x / cells.length, y: sum.y + cell.y / cells.length }), { x: 0, y: 0 });
  const spots = cells.map((cell) => ({ x: (cell.x - middle.x) * pitch, y: (cell.y - middle.y) * pitch }));
  const radius = spots.reduce((reach, spot, index) => Math.max(reach, Math.hypot(spot.x, spot.y) + (radii[index] ?? 0)), 0);
  return { spots, radius };
}

export interface Box {
  /** Where it wants to be. */
  readonly x: number;
  readonly y: number;
  /** Half its width, and its reach above and below that place. */
  readonly half: number;
  readonly above: number;
  readonly below: number;
}

export interface Frame {
  readonly width: number;
  readonly height: number;
}

/** Moves boxes apart until none covers another, each as near to its place as it can be, and inside the frame where its place
 * is. Same input, same answer. */
export function makeRoom(boxes: readonly Box[], frame: Frame, rounds = 80): Spot[] {
  // Places that are the same get a direction each to part in.
  const x = boxes.map((box, index) => box.x + 0.01 * Math.cos(2.4 * index));
  const y = boxes.map((box, index) => box.y + 0.01 * Math.sin(2.4 * index));
  for (let round = 0; round < 3 * rounds; round += 1) {
    let moved = false;
    // The pull home grows weak, so that the last rounds only part what still touches.
    const pull = round < rounds ? 0.3 * (1 - round / rounds) ** 1.5 : 0;
    for (let i = 0; i < boxes.length; i += 1) {
      x[i]! += (boxes[i]!.x - x[i]!) * pull;
      y[i]! += (boxes[i]!.y - y[i]!) * pull;
    }
    for (let i = 0; i < boxes.length; i += 1) {
      const box = boxes[i]!;
      if (box.x < 0 || box.y < 0 || box.x > frame.width || box.y > frame.height) continue;
      x[i] = Math.max(box.half, Math.min(frame.width - box.half, x[i]!));
      y[i] = Math.max(box.above, Math.min(frame.height - box.below, y[i]!));
    }
    for (let i = 0; i < boxes.length; i += 1) {
      for (let j = i + 1; j < boxes.length; j += 1) {
        const a = boxes[i]!;
        const b = boxes[j]!;
        const dx = x[j]! - x[i]!;
        const overX = a.half + b.half - Math.abs(dx);
        if (overX <= 0) continue;
        const dy = (y[j]! + (b.below - b.above) / 2) - (y[i]! + (a.below - a.above) / 2);
        const overY = (a.above + a.below + b.above + b.below) / 2 - Math.abs(dy);
        if (overY <= 0) continue;
        moved = true;
        // First away from each other in the direction in which they lie, so that a crowd opens on all sides and west stays
        // west; in the last rounds by the shorter way, which parts what still touches.
        const nearX = dx / (a.half + b.half);
        const nearY = 2 * dy / (a.above + a.below + b.above + b.below);
        const sideways = round > rounds * 0.6 ? (overX < overY ? 1 : 0) : nearX ** 2 / (nearX ** 2 + nearY ** 2);
        const pushX = sideways * (overX / 2 + 0.25) * (dx < 0 ? -1 : 1);
        const pushY = (1 - sideways) * (overY / 2 + 0.25) * (dy < 0 ? -1 : 1);
        x[i]! -= pushX;
        x[j]! += pushX;
        y[i]! -= pushY;
        y[j]! += pushY;
      }
    }
    if (!moved && pull < 0.01) break;
  }
  return boxes.map((_, index) => ({ x: x[index]!, y: y[index]! }));
}
