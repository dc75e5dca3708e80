// What the page is told before any column is read: the JSON that `tenon view --json` prints, and a
// little more. src/tenon/lab/view/view_data.cc writes it, docs/view.md describes it.

export interface PeakGroup {
  name: string;
  group: number;
  bytes: number;
  allocations: number;
}

export interface PolicyFigures {
  policy: string;
  reserved_peak_bytes: number;
  live_at_reserved_peak_bytes: number;
  fragmentation: number;
  driver_calls: number;
  driver_stall_us: number | null;
  moving_stall_us: number | null;
  recorded: boolean;  // what the program's own allocator did, not a replay
  out_of_memory: boolean;
  out_of_memory_event?: number;
  out_of_memory_message?: string;
  unit_bytes: number;
  display_bytes: number;
  ops_done: number;
}

export interface OutOfMemory {
  event: number;
  operation: number;  // allocations and frees before it
  time_us: number;
  requested_bytes: number;
  live_bytes: number;
  device_free_bytes: number | null;
  stack: string[];  // the request's, the user's own frames first
}

// What a share of the peak is for. docs/view.md says how sure is sure.
export interface Category {
  name: string;
  category: number;    // in the column of categories
  bytes: number;
  confidence: string;  // in words; empty: not known
}

export interface Verdict {
  sentences: string[];
  changes: string[];     // how to make each change that the sentences name
  categories: Category[];
}

export interface ColumnInfo {
  name: string;
  type: 'u8' | 'u16' | 'u32' | 'u64' | 'text';
  delta: boolean;
  count: number;
  pieces: number;
}

export interface Summary {
  trace: string;
  file: string;
  events: number;
  allocations: number;
  streams: number;
  trace_duration_us: number;
  timed: boolean;  // whether the recording has times; without, moments are told by events
  live_peak_bytes: number;
  live_peak_event: number;
  live_peak_time_us: number;
  live_peak_allocations: number;
  live_at_end_bytes: number;
  grouped_by: 'call site' | 'size';
  largest_at_peak: PeakGroup[];
  out_of_memory: OutOfMemory[];
  verdict: Verdict | null;  // null: the recording tells too little
  capacity_bytes: number | null;
  policies: PolicyFigures[];
  format: number;
  source: 'page' | 'server';
  outline: number[];
  warnings: string[];
  columns: ColumnInfo[];
}

// The texts that columns point to.
export interface Names {
  groups: string[];
  place_group: number[];
  place_stack: number[];
  place_tag: string[];
  stacks: number[][];
  frames: string[];
  frame_own: number[];     // by frame: 1: the user's own code, 0: a library's or the interpreter's
  categories: string[];    // empty: there is no column of categories
  mark_texts: string[];
  streams: number[];
}
