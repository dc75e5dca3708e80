// One policy's replay: what it held, and where blocks lay.
import type { Numbers } from '../data/columns';
import type { Model } from './model';

export interface PolicyPlaces {
  place: Numbers;      // by block: units from the display's start plus 1, 0: nowhere
  spanFrom: Numbers;   // memory held: from this operation
  spanTo: Numbers;     // ... to this one
  spanStart: Numbers;  // units
  spanSize: Numbers;   // units
}

export interface MapFigures {
  op: number;
  held: number;
  live: number;
  blocks: number;
  free: number;         // held, but in no block's requested bytes
  largestFree: number;  // longest stretch of that
  holes: number;        // number of such stretches
}

export interface MapImage extends MapFigures {
  ids: Int32Array;      // by pixel: block, -1 nothing held, -2 held and free
}

export class PolicyData {
  places: PolicyPlaces | null = null;

  constructor(
    readonly heldOp: Numbers,
    readonly heldBytes: Numbers,
    readonly unit: number,
    readonly displayBytes: number,
    readonly opsDone: number,
  ) {}

  // The number of steps at or before an operation. O(log steps).
  private stepsUntil(op: number): number {
    let low = 0;
    let high = this.heldOp.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.heldOp[middle] <= op) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  heldAt(op: number): number {
    const steps = this.stepsUntil(op);
    return steps === 0 ? 0 : this.heldBytes[steps - 1];
  }

  // Most bytes held in each column of a plot; NaN where the replay did not get to.
  heldMost(until: Int32Array): Float64Array {
    const out = new Float64Array(until.length - 1).fill(NaN);
    for (let c = 0; c < out.length; ++c) {
      const from = until[c];
      const to = until[c + 1];
      if (to < 0 || Math.max(0, from) >= this.opsDone) continue;
      let step = this.stepsUntil(from);
      let most = step === 0 ? 0 : this.heldBytes[step - 1];
      for (; step < this.heldOp.length && this.heldOp[step] <= to; ++step) {
        most = Math.max(most, this.heldBytes[step]);
      }
      out[c] = most;
    }
    return out;
  }

  // The blocks that are live at `op` and have a place, by place; and what is held, joined where it
  // touches: pairs of start and end. In units.
  private layout(model: Model, op: number): { blocks: Uint32Array; spans: number[] } {
    const { place, spanFrom, spanTo, spanStart, spanSize } = this.places!;
    const live = model.liveAt(op).filter((block) => block < place.length && place[block] > 0);
    const order = new Float64Array(live.length);
    for (let i = 0; i < live.length; ++i) order[i] = place[live[i]] * 0x200000 + (i % 0x200000);
    const sorted = live.length < 0x200000;
    if (sorted) order.sort();
    const blocks = sorted
      ? Uint32Array.from(order, (key) => live[key % 0x200000])
      : live.sort((a, b) => place[a] - place[b]);
    const held: [number, number][] = [];
    for (let i = 0; i < spanFrom.length && spanFrom[i] <= op; ++i) {
      if (op < spanTo[i]) held.push([spanStart[i], spanStart[i] + spanSize[i]]);
    }
    held.sort((a, b) => a[0] - b[0]);
    const spans: number[] = [];
    for (const [from, to] of held) {
      if (spans.length > 0 && from <= spans[spans.length - 1]) {
        spans[spans.length - 1] = Math.max(spans[spans.length - 1], to);
      } else {
        spans.push(from, to);
      }
    }
    return { blocks, spans };
  }

  // The display wrapped into rows, each `rowHeight` pixels high with a gap of one below.
  draw(model: Model, op: number, width: number, height: number, rowHeight: number): MapImage {
    const ids = new Int32Array(width * height).fill(-1);
    const rows = Math.max(1, Math.floor(height / rowHeight));
    const perPixel = Math.max(1, this.displayBytes) / this.unit / rows / width;
    const fill = (from: number, to: number, id: number) => {
      const first = Math.floor(from / perPixel);
      const end = Math.min(rows * width, Math.max(first + 1, Math.round(to / perPixel)));
      for (let p = first; p < end;) {
        const row = Math.floor(p / width);
        const stop = Math.min(end, (row + 1) * width);
        for (let y = 0; y < rowHeight - 1; ++y) {
          const line = (row * rowHeight + y) * width - row * width;
          ids.fill(id, line + p, line + stop);
        }
        p = stop;
      }
    };
    const { blocks, spans } = this.layout(model, op);
    for (let i = 0; i < spans.length; i += 2) fill(spans[i], spans[i + 1], -2);
    const place = this.places!.place;
    for (const block of blocks) {
      const start = place[block] - 1;
      if (model.size[block] > 0) fill(start, start + model.size[block] / this.unit, block);
    }
    return { ids, ...this.figures(model, op, blocks, spans) };
  }

  private figures(model: Model, op: number, blocks: Uint32Array, spans: number[]): MapFigures {
    const place = this.places!.place;
    let live = 0;
    let free = 0;
    let largest = 0;
    let holes = 0;
    const note = (stretch: number) => {
      if (stretch <= 0) return;
      free += stretch;
      ++holes;
      largest = Math.max(largest, stretch);
    };
    let next = 0;
    for (let i = 0; i < spans.length; i += 2) {
      const end = spans[i + 1] * this.unit;
      let at = spans[i] * this.unit;
      for (; next < blocks.length; ++next) {
        const block = blocks[next];
        const start = (place[block] - 1) * this.unit;
        if (start >= end) break;
        note(start - at);
        at = Math.max(at, start + model.size[block]);
        live += model.size[block];
      }
      note(end - at);
    }
    return { op, held: this.heldAt(op), live, blocks: blocks.length, free, largestFree: largest,
             holes };
  }
}
