// The horizontal axis: time in microseconds, or the number of operations.
import type { Model } from './model';

export type AxisKind = 'time' | 'event';

// The part of the plot that is drawn: x in the axis' unit, y in bytes, the size in device pixels.
export interface View {
  axis: AxisKind;
  x0: number;
  x1: number;
  y0: number;
  y1: number;
  width: number;
  height: number;
}

// The last operation at or before x, -1 before the first one.
export function opAt(model: Model, axis: AxisKind, x: number): number {
  if (axis === 'time') return model.opAtTime(x);
  return x < 0 ? -1 : Math.min(Math.floor(x), model.ops - 1);
}

// The end of the axis: what happens last is still seen.
export function axisEnd(model: Model, axis: AxisKind): number {
  if (model.ops === 0) return 1;
  return axis === 'event' ? model.ops : Math.max(1, model.timeUs[model.ops - 1]);
}

// For each pixel column the operations it covers, from the state it begins with to the last one in
// it: column c has opsUntil[c] ... opsUntil[c + 1]. Columns outside the recording have none: -1.
export function columnOps(model: Model, view: View): Int32Array {
  const out = new Int32Array(view.width + 1);
  const end = axisEnd(model, view.axis);
  const step = (view.x1 - view.x0) / view.width;
  for (let c = 0; c <= view.width; ++c) {
    const x = c === view.width ? view.x1 : view.x0 + c * step;
    out[c] = x > end + step ? -1 : opAt(model, view.axis, x);
  }
  return out;
}
