// What the page and its worker say to each other.
import type { ColumnInfo, Names, Summary } from '../data/summary';
import type { View } from './axis';
import type { Palette } from './colours';
import type { MapFigures } from './policy_data';

// What is marked in a column of the plot. Segments are the recording's own; where it has none, the
// growth and shrinking of a policy's memory stand in.
export const enum MarkBit { outOfMemory = 1, grew = 2, shrank = 4, phase = 8 }

// As in src/tenon/trace/trace.h.
export const enum MarkKind {
  segmentAlloc, segmentFree, segmentMap, segmentUnmap, outOfMemory, phaseBegin, phaseEnd, snapshot,
  other, sleepToHost, sleepDropped, wake,
}

export type StackOrder = 'allocation' | 'group';
// What blocks are coloured by, and stacked by where they are stacked by group.
export type Grouping = 'site' | 'category';

export type Request =
  | { kind: 'open'; summary: Summary; base: string }
  // The text of one piece in base64, where the page holds them.
  | { kind: 'piece'; name: string; piece: number; text: string }
  // classes: the colour of each group, or of each category.
  | { kind: 'style'; palette: Palette; grouping: Grouping; classes: number[] }
  | { kind: 'order'; order: StackOrder }
  // By place: 1 where it matches; null ends the search.
  | { kind: 'match'; id: number; matches: Uint8Array | null }
  | { kind: 'draw'; id: number; view: View; policies: number[]; marked: number }
  | { kind: 'map'; id: number; policy: number; op: number; width: number; height: number;
      rowHeight: number }
  | { kind: 'moment'; id: number; op: number }
  | { kind: 'block'; id: number; block: number }
  | { kind: 'find'; id: number; op: number; height: number }
  | { kind: 'where'; id: number; op: number; block: number }
  | { kind: 'at'; id: number; axis: View['axis']; x: number }
  | { kind: 'peak'; id: number; axis: View['axis'] }
  | { kind: 'timeline'; id: number; rows: number; axis: View['axis'] };

export interface DrawAnswer {
  kind: 'draw';
  id: number;
  view: View;
  pixels: Uint8ClampedArray<ArrayBuffer>;
  ids: Int32Array;
  most: Float64Array;
  ops: Int32Array;
  held: { policy: number; most: Float64Array }[];
  marks: Uint8Array;     // by column: which kinds of marks (MarkBit) fall into it
  milliseconds: number;
}

export interface MatchFigures {
  allocations: number;
  bytes: number;
  bytesAtPeak: number;   // of the whole program's peak
  most: number;          // most matching bytes live at once
  mostOp: number;
  atPeak: { group: number; bytes: number; blocks: number }[];
}

export interface BlockFacts {
  block: number;
  size: number;
  place: number;
  category: number | null;
  stream: number;
  allocOp: number;
  freeOp: number;        // = operations: never
  allocUs: number;
  freeUs: number;
  allocEvent: number;
  freeEvent: number;
  waitUs: number;
}

export interface Moment {
  op: number;
  event: number;
  timeUs: number;
  live: number;
  blocks: number;
  freed: boolean;        // what happened: a free, else an allocation
  block: number;         // of which block
  groups: { group: number; bytes: number; blocks: number }[];  // largest first
  categories: { group: number; bytes: number; blocks: number }[];  // the same; empty: not known
  largest: BlockFacts[];
  held: number[];        // by policy
}

export interface MarkList {
  op: Float64Array;      // operations before it
  timeUs: Float64Array;
  kind: Uint8Array;
  bytes: Float64Array;
  text: Uint32Array;
}

export interface TimelineRow {
  timeUs: number;
  event: number;
  live: number;          // most since the row before
  held: number[];        // most, by policy
}

export type Answer =
  | { kind: 'progress'; done: number; all: number }
  | { kind: 'ready'; names: Names; marks: MarkList; ops: number; endUs: number; peakOp: number;
      outline: number[];  // along operations
      milliseconds: number }
  | { kind: 'match'; id: number; figures: MatchFigures | null }
  | DrawAnswer
  | ({ kind: 'map'; id: number; policy: number; width: number; height: number;
       pixels: Uint8ClampedArray<ArrayBuffer>; ids: Int32Array } & MapFigures)
  | { kind: 'needs'; columns: ColumnInfo[] }
  | { kind: 'moment'; id: number; moment: Moment }
  | { kind: 'block'; id: number; facts: BlockFacts }
  | { kind: 'find'; id: number; facts: BlockFacts | null; from: number; to: number }
  | { kind: 'where'; id: number; from: number; to: number }
  | { kind: 'at'; id: number; op: number; x: number }
  // from, to: where memory stays near the peak around it, along the axis asked for.
  | { kind: 'peak'; id: number; op: number; from: number; to: number }
  | { kind: 'timeline'; id: number; rows: TimelineRow[] }
  | { kind: 'error'; message: string };
