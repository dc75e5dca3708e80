// The recorded program in arrays: what every drawing and table is computed from.
import type { Numbers } from '../data/columns';

// Operations are allocations and frees, numbered from 0 in the order of the recording; blocks are
// numbered by allocation. The state "at operation i" is the one right after it.
export class Model {
  readonly ops: number;
  readonly blocks: number;
  readonly allocOp: Uint32Array;   // by block
  readonly freeOp: Uint32Array;    // by block; `ops` for one that is never freed
  readonly blockOf: Int32Array;    // by operation: the block allocated, or ~block for one freed
  readonly live: Float64Array;     // by operation: bytes
  readonly liveBlocks: Uint32Array;
  readonly peakOp: number;

  constructor(
    readonly timeUs: Numbers,
    freed: Numbers,
    readonly size: Numbers,
    readonly place: Numbers,
    readonly stream: Numbers,
    readonly waitUs: Numbers,
    readonly event: Numbers,
    readonly category: Numbers | null,  // by block; null: not known
  ) {
    this.ops = timeUs.length;
    this.blocks = size.length;
    this.allocOp = new Uint32Array(this.blocks);
    this.freeOp = new Uint32Array(this.blocks).fill(this.ops);
    this.blockOf = new Int32Array(this.ops);
    this.live = new Float64Array(this.ops);
    this.liveBlocks = new Uint32Array(this.ops);
    let next = 0;
    let live = 0;
    let count = 0;
    let peak = 0;
    for (let op = 0; op < this.ops; ++op) {
      if (freed[op] === 0) {
        this.allocOp[next] = op;
        this.blockOf[op] = next;
        live += size[next++];
        ++count;
      } else {
        const block = next - freed[op];
        this.freeOp[block] = op;
        this.blockOf[op] = ~block;
        live -= size[block];
        --count;
      }
      this.live[op] = live;
      this.liveBlocks[op] = count;
      if (live > this.live[peak]) peak = op;
    }
    this.peakOp = peak;
  }

  isLive(block: number, op: number): boolean {
    return this.allocOp[block] <= op && op < this.freeOp[block];
  }

  // The last operation at or before a time, -1 where there is none. O(log ops).
  opAtTime(timeUs: number): number {
    let low = 0;
    let high = this.ops;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.timeUs[middle] <= timeUs) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  // The operations around the peak between which at least this share of it stays live.
  nearPeak(share: number): { from: number; to: number } {
    const least = this.ops === 0 ? 0 : this.live[this.peakOp] * share;
    let from = this.peakOp;
    let to = this.peakOp;
    while (from > 0 && this.live[from - 1] >= least) --from;
    while (to + 1 < this.ops && this.live[to + 1] >= least) ++to;
    return { from, to };
  }

  // Blocks live at an operation, by allocation. O(blocks allocated so far).
  liveAt(op: number): Uint32Array {
    const out = new Uint32Array(op < 0 || this.ops === 0 ? 0 : this.liveBlocks[op]);
    let n = 0;
    for (let block = 0; n < out.length; ++block) if (op < this.freeOp[block]) out[n++] = block;
    return out;
  }
}
