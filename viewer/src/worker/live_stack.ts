// The blocks live at one moment, stacked: which block lies at which height?
import type { Model } from './model';

const kShift = 3;  // eight children to a node

// A tree of sums over all blocks in stacking order, in which blocks that are not live count 0. Moving
// to another moment costs O(log blocks) for each block that is live at only one of the two, or
// O(blocks) in all, whichever is less; finding a block by height O(log blocks). Sums are exact as
// long as they are whole numbers below 2^53.
export class LiveStack {
  private readonly levels: Float64Array[] = [];
  private op = -1;
  readonly found = { block: -1, from: 0, to: 0 };

  // rank[block] is its position from the bottom; blockAt the other way round; both null: as numbered.
  constructor(
    private readonly model: Model,
    private readonly rank: Uint32Array | null,
    private readonly blockAt: Uint32Array | null,
  ) {
    let n = Math.max(1, model.blocks);
    for (;;) {
      // Whole nodes, so that a node's children can be read without looking for the end.
      this.levels.push(new Float64Array(((n + 7) >> kShift) << kShift));
      if (n <= 8) break;
      n = (n + 7) >> kShift;
    }
  }

  total(): number {
    return this.op < 0 ? 0 : this.model.live[this.op];
  }

  moveTo(op: number): void {
    const from = this.op;
    this.op = op;
    if (Math.abs(op - from) > this.model.blocks / 4 + 64) this.rebuild();
    else if (op > from) this.forward(from, op);
    else this.backward(from, op);
  }

  private forward(from: number, to: number): void {
    const { blockOf, freeOp, allocOp } = this.model;
    for (let op = from + 1; op <= to; ++op) {
      const block = blockOf[op];
      if (block >= 0) {
        if (freeOp[block] > to) this.add(block, 1);
      } else if (allocOp[~block] <= from) {
        this.add(~block, -1);
      }
    }
  }

  private backward(from: number, to: number): void {
    const { blockOf, freeOp, allocOp } = this.model;
    for (let op = from; op > to; --op) {
      const block = blockOf[op];
      if (block >= 0) {
        if (freeOp[block] > from) this.add(block, -1);
      } else if (allocOp[~block] <= to) {
        this.add(~block, 1);
      }
    }
  }

  private add(block: number, sign: number): void {
    const amount = sign * this.model.size[block];
    let at = this.rank === null ? block : this.rank[block];
    for (let level = 0; level < this.levels.length; ++level, at >>= kShift) {
      this.levels[level][at] += amount;
    }
  }

  private rebuild(): void {
    const { blocks, size } = this.model;
    const leaves = this.levels[0];
    for (let block = 0; block < blocks; ++block) {
      leaves[this.rank === null ? block : this.rank[block]] =
        this.model.isLive(block, this.op) ? size[block] : 0;
    }
    for (let level = 1; level < this.levels.length; ++level) {
      const below = this.levels[level - 1];
      const here = this.levels[level];
      for (let i = 0, child = 0; child < below.length; ++i, child += 8) {
        here[i] = below[child] + below[child + 1] + below[child + 2] + below[child + 3] +
          below[child + 4] + below[child + 5] + below[child + 6] + below[child + 7];
      }
    }
  }

  // Finds the block with from <= height < to and puts it into `found`; false above the stack.
  find(height: number): boolean {
    if (height < 0 || height >= this.total()) return false;
    let at = 0;
    let from = 0;
    for (let level = this.levels.length - 1; level >= 0; --level) {
      const sums = this.levels[level];
      const end = Math.min(at + 8, sums.length) - 1;
      while (at < end && height >= from + sums[at]) from += sums[at++];
      if (level > 0) at <<= kShift;
    }
    this.found.block = this.blockAt === null ? at : this.blockAt[at];
    this.found.from = from;
    this.found.to = from + this.levels[0][at];
    return true;
  }

  // Where a block that is live now begins. O(8 log blocks).
  bottomOf(block: number): number {
    let at = this.rank === null ? block : this.rank[block];
    let sum = 0;
    for (const sums of this.levels) {
      for (let left = (at >> kShift) << kShift; left < at; ++left) sum += sums[left];
      at >>= kShift;
    }
    return sum;
  }
}
