// Figures for tables and for what is said of a block or a moment.
import { axisEnd, opAt, type AxisKind } from './axis';
import type { Model } from './model';
import type { PolicyData } from './policy_data';
import type { BlockFacts, MatchFigures, Moment, TimelineRow } from './protocol';

export function blockFacts(model: Model, block: number): BlockFacts {
  const allocOp = model.allocOp[block];
  const freeOp = model.freeOp[block];
  const freed = freeOp < model.ops;
  return {
    block, size: model.size[block], place: model.place[block],
    category: model.category === null ? null : model.category[block], stream: model.stream[block],
    allocOp, freeOp,
    allocUs: model.timeUs[allocOp], freeUs: freed ? model.timeUs[freeOp] : NaN,
    allocEvent: model.event[allocOp], freeEvent: freed ? model.event[freeOp] : NaN,
    waitUs: model.waitUs[block],
  };
}

type GroupSum = { group: number; bytes: number; blocks: number };

function sumBy(groupOf: (block: number) => number, groups: number, model: Model,
               blocks: Uint32Array): GroupSum[] {
  const bytes = new Float64Array(groups);
  const count = new Uint32Array(groups);
  for (const block of blocks) {
    const group = groupOf(block);
    bytes[group] += model.size[block];
    ++count[group];
  }
  const out: GroupSum[] = [];
  for (let group = 0; group < groups; ++group) {
    if (count[group] > 0) out.push({ group, bytes: bytes[group], blocks: count[group] });
  }
  return out.sort((a, b) => b.bytes - a.bytes || a.group - b.group);
}

// So many of the largest blocks, largest first; of equal ones those allocated first.
// O(blocks + wanted log blocks) for most orders.
function largestOf(blocks: Uint32Array, size: ArrayLike<number>, wanted: number): number[] {
  const out: number[] = [];
  for (const block of blocks) {
    if (out.length === wanted && size[block] <= size[out[wanted - 1]]) continue;
    let at = out.length;
    while (at > 0 && size[out[at - 1]] < size[block]) --at;
    out.splice(at, 0, block);
    if (out.length > wanted) out.pop();
  }
  return out;
}

export function momentAt(model: Model, groupOf: ArrayLike<number>, groups: number,
                         categories: number, policies: PolicyData[], op: number): Moment {
  const blocks = model.liveAt(op);
  const largest = largestOf(blocks, model.size, 25);
  const what = model.blockOf[op];
  return {
    op, event: model.event[op], timeUs: model.timeUs[op], live: model.live[op],
    blocks: blocks.length, freed: what < 0, block: what < 0 ? ~what : what,
    groups: sumBy((block) => groupOf[model.place[block]], groups, model, blocks),
    categories: model.category === null ? []
      : sumBy((block) => model.category![block], categories, model, blocks),
    largest: largest.map((block) => blockFacts(model, block)),
    held: policies.map((policy) => (op < policy.opsDone ? policy.heldAt(op) : NaN)),
  };
}

export function matchFigures(model: Model, groupOf: ArrayLike<number>, groups: number,
                             matches: Uint8Array): MatchFigures {
  const out: MatchFigures = { allocations: 0, bytes: 0, bytesAtPeak: 0, most: 0, mostOp: 0,
                              atPeak: [] };
  let live = 0;
  for (let op = 0; op < model.ops; ++op) {
    const what = model.blockOf[op];
    const block = what < 0 ? ~what : what;
    if (matches[model.place[block]] === 0) continue;
    if (what < 0) {
      live -= model.size[block];
      continue;
    }
    ++out.allocations;
    out.bytes += model.size[block];
    live += model.size[block];
    if (live > out.most) {
      out.most = live;
      out.mostOp = op;
    }
  }
  const atPeak = model.liveAt(model.peakOp).filter((block) => matches[model.place[block]] !== 0);
  out.atPeak = sumBy((block) => groupOf[model.place[block]], groups, model, atPeak);
  out.bytesAtPeak = out.atPeak.reduce((sum, group) => sum + group.bytes, 0);
  return out;
}

// Most live bytes in each of so many equal stretches of operations.
export function outlineByOps(model: Model, columns: number): number[] {
  const out = new Array<number>(columns).fill(0);
  for (let op = 0; op < model.ops; ++op) {
    const column = Math.floor(op * columns / model.ops);
    out[column] = Math.max(out[column], model.live[op]);
  }
  // Where there are more columns than operations, a state lasts until the next.
  for (let c = 1; c < columns && model.ops < columns; ++c) {
    out[c] = model.live[Math.floor(c * model.ops / columns)] ?? 0;
  }
  return out;
}

// The whole recording in equal steps along the axis.
export function timeline(model: Model, policies: PolicyData[], rows: number,
                         axis: AxisKind): TimelineRow[] {
  if (model.ops === 0) return [];
  const end = axisEnd(model, axis);
  const until = new Int32Array(rows + 1);
  for (let i = 0; i <= rows; ++i) until[i] = i === 0 ? -1 : opAt(model, axis, (end * i) / rows);
  const held = policies.map((policy) => policy.heldMost(until));
  const out: TimelineRow[] = [];
  for (let row = 0; row < rows; ++row) {
    let live = 0;
    for (let op = Math.max(0, until[row]); op <= until[row + 1]; ++op) {
      live = Math.max(live, model.live[op]);
    }
    out.push({ timeUs: axis === 'time' ? (end * (row + 1)) / rows : NaN, event: model.event[Math.max(0, until[row + 1])],
               live, held: held.map((most) => most[row]) });
  }
  return out;
}
