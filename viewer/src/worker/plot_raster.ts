// Draws the stack of live blocks over time, pixel by pixel.
import { columnOps, type View } from './axis';
import type { LiveStack } from './live_stack';
import type { Model } from './model';

export const kNothing = -1;

export interface Raster {
  ids: Int32Array;      // by pixel, row by row from the top: the block drawn there, kNothing
  most: Float64Array;   // by column: most bytes live; NaN outside the recording
  ops: Int32Array;      // by column: the operation whose state is drawn, -1
}

// Each column shows the moment at which most is live among those it covers, so a peak is never lost
// by zooming out. A pixel shows the block at its middle: what is drawn is what a pointer finds.
// O(operations in view + pixels log blocks), less where neighbouring columns are alike.
export function rasterise(model: Model, stack: LiveStack, view: View): Raster {
  const { width, height } = view;
  const ids = new Int32Array(width * height).fill(kNothing);
  const most = new Float64Array(width).fill(NaN);
  const ops = new Int32Array(width).fill(-1);
  const until = columnOps(model, view);
  const column = new Int32Array(height);
  const perRow = (view.y1 - view.y0) / height;
  let drawn = -1;
  let rows = 0;  // filled rows of `column`
  for (let c = 0; c < width; ++c) {
    if (until[c + 1] < 0) continue;
    const op = highest(model, Math.max(0, until[c]), until[c + 1]);
    ops[c] = op;
    most[c] = model.live[op];
    if (op !== drawn) {
      stack.moveTo(op);
      rows = fillColumn(stack, column, view.y0, perRow);
      drawn = op;
    }
    for (let row = 0, at = (height - 1) * width + c; row < rows; ++row, at -= width) {
      ids[at] = column[row];
    }
  }
  return { ids, most, ops };
}

function highest(model: Model, from: number, to: number): number {
  const live = model.live;
  let best = from;
  for (let op = from + 1; op <= to; ++op) if (live[op] > live[best]) best = op;
  return best;
}

// From the bottom up; returns how many rows the stack reaches.
function fillColumn(stack: LiveStack, column: Int32Array, y0: number, perRow: number): number {
  let row = 0;
  while (row < column.length && stack.find(y0 + (row + 0.5) * perRow)) {
    const { block, to } = stack.found;
    const end = Math.min(column.length, Math.ceil((to - y0) / perRow - 0.5));
    column[row++] = block;
    while (row < end) column[row++] = block;
  }
  return row;
}
