// Which columns of the plot have something to mark.
import type { PolicyData } from './policy_data';
import { MarkBit, MarkKind, type MarkList } from './protocol';

function bitOf(kind: number): number {
  switch (kind) {
    case MarkKind.outOfMemory: return MarkBit.outOfMemory;
    case MarkKind.segmentAlloc:
    case MarkKind.segmentMap: return MarkBit.grew;
    case MarkKind.segmentFree:
    case MarkKind.segmentUnmap: return MarkBit.shrank;
    case MarkKind.phaseBegin:
    case MarkKind.phaseEnd: return MarkBit.phase;
    default: return 0;
  }
}

export function hasSegments(marks: MarkList): boolean {
  return marks.kind.some((kind) => kind <= MarkKind.segmentUnmap);
}

// An event belongs to the column in which the operation before it lies.
function place(bits: Uint8Array, until: Int32Array, ops: ArrayLike<number>,
               bit: (i: number) => number): void {
  let i = 0;
  for (let c = 0; c < bits.length; ++c) {
    const to = until[c + 1];
    if (to < 0) continue;
    if (c === 0 || until[c] < 0) while (i < ops.length && ops[i] < until[c]) ++i;
    for (; i < ops.length && ops[i] <= to; ++i) bits[c] |= bit(i);
  }
}

// `policy` stands in where the recording has no segments; null: nobody does.
export function markColumns(marks: MarkList, policy: PolicyData | null,
                            until: Int32Array): Uint8Array {
  const bits = new Uint8Array(until.length - 1);
  place(bits, until, marks.op, (i) => bitOf(marks.kind[i]));
  if (policy !== null && !hasSegments(marks)) {
    const { heldOp, heldBytes } = policy;
    place(bits, until, heldOp, (i) =>
      heldBytes[i] > (i === 0 ? 0 : heldBytes[i - 1]) ? MarkBit.grew : MarkBit.shrank);
  }
  return bits;
}
