// Which columns of the plot have something to mark.
import type { View } from './axis';
import type { Model } from './model';
import type { PolicyData } from './policy_data';
import { MarkBit, MarkKind, type MarkList } from './protocol';

function bitOf(kind: number): number {
  switch (kind) {
    case MarkKind.outOfMemory: return MarkBit.outOfMemory;
    case MarkKind.segmentAlloc:
    case MarkKind.segmentMap:
    case MarkKind.wake: return MarkBit.grew;
    case MarkKind.segmentFree:
    case MarkKind.segmentUnmap:
    case MarkKind.sleepToHost:
    case MarkKind.sleepDropped: return MarkBit.shrank;
    case MarkKind.phaseBegin:
    case MarkKind.phaseEnd: return MarkBit.phase;
    default: return 0;
  }
}

export function hasSegments(marks: MarkList): boolean {
  return marks.kind.some((kind) => kind <= MarkKind.segmentUnmap);
}

// `policy` stands in where the recording has no segments; null: nobody does. Along time a mark stands
// at its own time, along operations before the one that follows it. O(marks).
export function markColumns(model: Model, marks: MarkList, policy: PolicyData | null,
                            view: View): Uint8Array {
  const bits = new Uint8Array(view.width);
  const scale = view.width / (view.x1 - view.x0);
  const put = (x: number, bit: number) => {
    const column = Math.floor((x - view.x0) * scale);
    // What lies on the right edge belongs to the last column.
    if (column >= 0 && column < bits.length) bits[column] |= bit;
    else if (x === view.x1) bits[bits.length - 1] |= bit;
  };
  const byTime = view.axis === 'time';
  for (let i = 0; i < marks.op.length; ++i) {
    put(byTime ? marks.timeUs[i] : marks.op[i], bitOf(marks.kind[i]));
  }
  if (policy !== null && !hasSegments(marks)) {
    const { heldOp, heldBytes } = policy;
    for (let i = 0; i < heldOp.length; ++i) {
      const op = Math.min(heldOp[i], model.ops - 1);
      put(byTime ? model.timeUs[op] : op,
          heldBytes[i] > (i === 0 ? 0 : heldBytes[i - 1]) ? MarkBit.grew : MarkBit.shrank);
    }
  }
  return bits;
}
