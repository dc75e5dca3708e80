// The plot: what is seen, what the pointer and the keys do, and what is asked of the worker.
import type { Names, Summary } from '../data/summary';
import type { BlockFacts, MarkList } from '../worker/protocol';
import type { View } from '../worker/axis';
import type { Client } from './client';
import { byId, el } from './dom';
import * as format from './format';
import { Drawn, PlotPainter, plotSpan, type Box, type Scene } from './plot_paint';
import type { State } from './state';
import type { ThemeSwitch } from './theme';
import { Viewport } from './viewport';

const kSettleMs = 140;    // after the last movement everything is drawn at full sharpness
const kSlowDrawMs = 35;   // what takes longer is drawn at half the sharpness while moving

export class Plot {
  readonly viewport = new Viewport();
  private readonly canvas = byId<HTMLCanvasElement>('plot');
  private readonly tip = byId('tip');
  private readonly painter = new PlotPainter(this.canvas.getContext('2d', { alpha: false })!);
  private box: Box = { left: 76, top: 6, width: 100, height: 100 };
  private ratio = 1;
  private whole: Drawn | null = null;
  private detail: Drawn | null = null;
  private highlight: Scene['highlight'] = null;
  private hovered = -1;
  private facts = new Map<number, BlockFacts>();
  private names: Names | null = null;
  private marks: MarkList | null = null;
  private ops = 0;
  private endUs = 0;
  private cursorX: number | null = null;
  private framed = false;
  private busy = false;
  private wanted = false;
  private wholeStale = true;
  private lastDrawMs = 0;
  private lastMove = -1e9;
  private settleTimer = 0;
  onView: () => void = () => {};
  onFirstDraw: () => void = () => {};

  constructor(
    private readonly summary: Summary,
    private readonly client: Client,
    private readonly state: State,
    private readonly theme: ThemeSwitch,
  ) {
    this.ops = summary.events;
    this.endUs = summary.trace_duration_us;
    this.viewport.reset(this.endX(), this.top(), 1);
    new ResizeObserver(() => this.resize()).observe(byId('plot-box'));
    this.resize();
    this.listen();
    state.on(['axis'], () => this.setAxis());
    state.on(['theme', 'matches', 'order', 'grouping', 'policies', 'mapPolicy'], () => {
      this.setHighlight(null);
      this.wholeStale = true;
      this.viewport.reset(this.endX(), this.top(), this.leastX(), true);
      this.invalidate();
    });
    state.on(['cursorOp'], () => this.moveCursor());
  }

  // The data are there.
  start(names: Names, marks: MarkList, ops: number, endUs: number): void {
    this.names = names;
    this.marks = marks;
    this.ops = ops;
    this.endUs = endUs;
    this.canvas.setAttribute('aria-valuemax', String(Math.max(0, ops - 1)));
    this.viewport.reset(this.endX(), this.top(), this.leastX());
    this.moveCursor();
    this.invalidate();
  }

  get ready(): boolean { return this.names !== null && this.ops > 0; }
  get settled(): boolean { return !this.busy && !this.wanted && !this.framed; }
  get lastAnswerMs(): number { return this.lastDrawMs; }
  get drawnView(): View | null { return this.detail?.view ?? null; }

  private endX(): number {
    return this.state.now.axis === 'event' ? Math.max(1, this.ops) : Math.max(1, this.endUs);
  }
  private leastX(): number {
    return this.state.now.axis === 'event' ? Math.min(8, this.endX()) : Math.min(10, this.endX());
  }

  // The plot ends a little above the highest line in it.
  private top(): number {
    let top = this.summary.live_peak_bytes;
    for (const index of this.state.now.policies) {
      top = Math.max(top, this.summary.policies[index].reserved_peak_bytes);
    }
    const capacity = this.summary.capacity_bytes;
    if (capacity !== null && capacity < 2 * top) top = Math.max(top, capacity);
    return Math.max(1, top * 1.04);
  }

  private resize(): void {
    const host = byId('plot-box');
    const width = Math.max(200, host.clientWidth);
    const height = Math.max(120, host.clientHeight);
    this.ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(width * this.ratio);
    this.canvas.height = Math.round(height * this.ratio);
    this.box = { ...plotSpan(width), top: 6, height: height - 42 };
    this.wholeStale = true;
    this.invalidate();
  }

  private setAxis(): void {
    this.whole = this.detail = null;
    this.wholeStale = true;
    this.setHighlight(null);
    this.viewport.reset(this.endX(), this.top(), this.leastX());
    this.moveCursor();
    this.invalidate();
  }

  // Something has changed: a frame, and a new drawing by the worker.
  invalidate(): void {
    this.wanted = true;
    this.frame();
    this.onView();
  }

  private moved(): void {
    this.lastMove = performance.now();
    this.invalidate();
    clearTimeout(this.settleTimer);
    this.settleTimer = window.setTimeout(() => this.invalidate(), kSettleMs + 10);
  }

  private frame(): void {
    if (this.framed) return;
    this.framed = true;
    requestAnimationFrame(() => {
      this.framed = false;
      this.paint();
      this.request();
    });
  }

  private paint(): void {
    this.painter.paint({
      box: this.box, ratio: this.ratio, viewport: this.viewport, ink: this.theme.ink(),
      whole: this.whole, detail: this.detail, axisIsTime: this.state.now.axis === 'time',
      cursorX: this.cursorX, capacity: this.summary.capacity_bytes, highlight: this.highlight,
      outline: this.whole || (this.state.now.axis === 'event') === this.summary.timed ? null
        : { values: this.summary.outline, end: this.endX() },
    });
  }

  // One drawing is under way at a time; what is wanted meanwhile is asked for afterwards.
  private request(): void {
    if (!this.ready || this.busy || !this.wanted) return;
    this.wanted = false;
    this.busy = true;
    const moving = performance.now() - this.lastMove < kSettleMs;
    const sharpness = moving && this.lastDrawMs > kSlowDrawMs ? 0.5 : 1;
    const width = Math.max(1, Math.round(this.box.width * this.ratio * sharpness));
    const height = Math.max(1, Math.round(this.box.height * this.ratio * sharpness));
    // The whole first, and again when it has changed: it stands in where nothing finer is drawn yet.
    const all = this.wholeStale;
    const { x0, x1, y0, y1 } = this.viewport;
    const view: View = all
      ? { axis: this.state.now.axis, x0: 0, x1: this.viewport.end, y0: 0, y1: this.viewport.top,
          width, height }
      : { axis: this.state.now.axis, x0, x1, y0, y1, width, height };
    if (all) this.wholeStale = false;
    void this.client.ask({ kind: 'draw', view, policies: [...this.state.now.policies],
                           marked: this.state.now.mapPolicy }).then((answer) => {
      this.busy = false;
      if (answer.view.axis === this.state.now.axis) {
        this.lastDrawMs = answer.milliseconds;
        const drawn = new Drawn(answer);
        if (all) this.whole = drawn;
        this.detail = drawn;
        this.setHighlight(this.highlight ? this.hovered : null);
        if (all && !this.viewport.isWhole) this.wanted = true;
        this.onFirstDraw();
        this.onFirstDraw = () => {};
      } else {
        this.wanted = true;
      }
      this.frame();
    });
  }

  // --- The moment.

  private moveCursor(): void {
    const { cursorOp, axis } = this.state.now;
    if (!this.ready) return;
    if (axis === 'event') {
      this.cursorX = cursorOp + 0.5;
      this.frame();
    }
    void this.client.ask({ kind: 'moment', op: cursorOp }).then(({ moment }) => {
      if (moment.op !== this.state.now.cursorOp) return;
      this.cursorX = this.state.now.axis === 'time' ? moment.timeUs : moment.op + 0.5;
      this.canvas.setAttribute('aria-valuenow', String(moment.op));
      this.canvas.setAttribute('aria-valuetext',
        (this.summary.timed ? `${format.time(moment.timeUs)}, ` : '') +
        `event ${format.count(moment.event)}: ` +
        `${format.bytes(moment.live)} live in ${format.plural(moment.blocks, 'allocation')}`);
      this.onMoment(moment);
      this.frame();
    });
  }
  onMoment: (moment: import('../worker/protocol').Moment) => void = () => {};

  showCursor(): void {
    if (this.cursorX === null) return;
    const { x0, x1, width } = this.viewport;
    if (this.cursorX < x0 || this.cursorX > x1) {
      this.viewport.setX(this.cursorX - width / 2, this.cursorX + width / 2);
      this.moved();
    }
  }

  // --- Blocks under the pointer.

  private toPlot(event: { clientX: number; clientY: number }): { x: number; y: number; inside: boolean;
                                                               px: number; py: number } {
    const rect = this.canvas.getBoundingClientRect();
    const px = event.clientX - rect.left;
    const py = event.clientY - rect.top;
    const { box, viewport } = this;
    return {
      px, py,
      x: viewport.x0 + (px - box.left) / box.width * viewport.width,
      y: viewport.y1 - (py - box.top) / box.height * viewport.height,
      inside: px >= box.left && px <= box.left + box.width && py >= box.top && py <= box.top + box.height,
    };
  }

  // What is drawn there: the finest drawing that covers the point.
  blockAt(x: number, y: number): { block: number; op: number } {
    for (const drawn of [this.detail, this.whole]) {
      const index = drawn?.indexAt(x, y) ?? -1;
      if (drawn && index >= 0) {
        return { block: drawn.answer.ids[index], op: drawn.answer.ops[index % drawn.view.width] };
      }
    }
    return { block: -1, op: -1 };
  }

  private async hover(event: PointerEvent): Promise<void> {
    const at = this.toPlot(event);
    const { block } = at.inside ? this.blockAt(at.x, at.y) : { block: -1 };
    if (block < 0) {
      this.hovered = -1;
      this.tip.hidden = true;
      this.setHighlight(null);
      return;
    }
    if (block !== this.hovered) {
      this.hovered = block;
      if (!this.facts.has(block)) {
        this.facts.set(block, (await this.client.ask({ kind: 'block', block })).facts);
        if (this.facts.size > 5000) this.facts.clear();
        if (this.hovered !== block) return;
      }
      const facts = this.facts.get(block);
      if (!facts || !this.names) return;
      this.tip.replaceChildren(...describeBlock(facts, this.names, this.summary, kTipFrames));
      this.setHighlight(block);
    }
    this.tip.hidden = false;
    const host = byId('plot-box');
    const right = at.px + 18 + this.tip.offsetWidth > host.clientWidth;
    this.tip.style.left = `${Math.max(0, right ? at.px - 14 - this.tip.offsetWidth : at.px + 18)}px`;
    this.tip.style.top =
      `${Math.max(0, Math.min(at.py + 14, host.clientHeight - this.tip.offsetHeight))}px`;
  }

  // Brightens a block's pixels.
  private setHighlight(block: number | null): void {
    const drawn = this.detail;
    if (block === null || block < 0 || !drawn) {
      if (this.highlight) this.frame();
      this.highlight = null;
      return;
    }
    const { ids, ops } = drawn.answer;
    const { width, height } = drawn.view;
    const facts = this.facts.get(block);
    let from = 0;
    let to = width;
    if (facts) {  // only the columns in which it is live
      while (from < to && !(ops[from] >= facts.allocOp && ops[from] < facts.freeOp)) ++from;
      while (to > from && !(ops[to - 1] >= facts.allocOp && ops[to - 1] < facts.freeOp)) --to;
    }
    if (from >= to) {
      this.highlight = null;
      this.frame();
      return;
    }
    const wide = to - from;
    const pixels = new Uint32Array(wide * height);
    const colour = this.theme.theme === 'dark' ? 0x70ffffff : 0x60000000;
    for (let y = 0, i = 0; y < height; ++y) {
      for (let at = y * width + from; at < y * width + to; ++at, ++i) {
        if (ids[at] === block) pixels[i] = colour;
      }
    }
    const canvas = document.createElement('canvas');
    canvas.width = wide;
    canvas.height = height;
    canvas.getContext('2d')!.putImageData(
      new ImageData(new Uint8ClampedArray(pixels.buffer), wide, height), 0, 0);
    const step = (drawn.view.x1 - drawn.view.x0) / width;
    this.highlight = { canvas, from, view: {
      ...drawn.view, width: wide, x0: drawn.view.x0 + from * step, x1: drawn.view.x0 + to * step } };
    this.frame();
  }

  // --- Pointer and keys.

  private listen(): void {
    const { canvas } = this;
    canvas.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
    canvas.addEventListener('pointerdown', (event) => this.press(event));
    canvas.addEventListener('pointermove', (event) => this.drag(event));
    canvas.addEventListener('pointerup', (event) => this.release(event));
    canvas.addEventListener('pointercancel', (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener('pointerleave', () => {
      this.tip.hidden = true;
      this.hovered = -1;
      this.setHighlight(null);
    });
    canvas.addEventListener('dblclick', (event) => {
      const at = this.toPlot(event);
      const { block } = this.blockAt(at.x, at.y);
      if (block >= 0) void this.zoomToBlock(block);
    });
    canvas.addEventListener('keydown', (event) => this.key(event));
  }

  private wheel(event: WheelEvent): void {
    event.preventDefault();
    const at = this.toPlot(event);
    const unit = event.deltaMode === 1 ? 30 : event.deltaMode === 2 ? 300 : 1;
    const dx = event.deltaX * unit;
    const dy = event.deltaY * unit;
    if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) {
      this.viewport.pan((dx || dy) / this.box.width * this.viewport.width, 0);
    } else {
      const factor = Math.exp(Math.max(-200, Math.min(200, dy)) * 0.0025);
      if (event.altKey || at.px < this.box.left) this.viewport.zoomY(factor, at.y);
      else this.viewport.zoomX(factor, at.x);
    }
    this.tip.hidden = true;
    this.moved();
  }

  private readonly pointers = new Map<number, { x: number; y: number }>();
  private travelled = 0;
  private scrubbing = false;

  private press(event: PointerEvent): void {
    if (event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    this.travelled = 0;
    this.scrubbing = this.toPlot(event).py > this.box.top + this.box.height;
    if (this.scrubbing) void this.cursorTo(this.toPlot(event).x);
  }

  private drag(event: PointerEvent): void {
    const before = this.pointers.get(event.pointerId);
    if (!before) return void this.hover(event);
    const dx = event.clientX - before.x;
    const dy = event.clientY - before.y;
    this.travelled += Math.abs(dx) + Math.abs(dy);
    if (this.scrubbing) return void this.cursorTo(this.toPlot(event).x);
    if (this.travelled < 4 && this.pointers.size === 1) return;
    const { box, viewport } = this;
    if (this.pointers.size === 2) {  // two fingers: closer or further, around the other one
      const other = [...this.pointers].find(([id]) => id !== event.pointerId)![1];
      const was = Math.max(10, Math.abs(before.x - other.x));
      const is = Math.max(10, Math.abs(event.clientX - other.x));
      viewport.zoomX(was / is, this.toPlot({ clientX: other.x, clientY: other.y }).x);
    } else {
      viewport.pan(-dx / box.width * viewport.width, dy / box.height * viewport.height);
    }
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    this.tip.hidden = true;
    this.moved();
  }

  private release(event: PointerEvent): void {
    if (!this.pointers.delete(event.pointerId) || this.travelled >= 4 || this.scrubbing) return;
    const at = this.toPlot(event);
    if (!at.inside) return;
    const { block, op } = this.blockAt(at.x, at.y);
    if (op >= 0) this.state.set({ cursorOp: op, block: block >= 0 ? block : null });
    else void this.cursorTo(at.x);
  }

  private async cursorTo(x: number): Promise<void> {
    if (!this.ready) return;
    const answer = await this.client.ask({ kind: 'at', axis: this.state.now.axis, x });
    this.state.set({ cursorOp: Math.max(0, Math.min(answer.op, this.ops - 1)) });
  }

  async zoomToBlock(block: number): Promise<void> {
    const { facts } = await this.client.ask({ kind: 'block', block });
    const time = this.state.now.axis === 'time';
    const from = time ? facts.allocUs : facts.allocOp;
    const to = facts.freeOp < this.ops ? (time ? facts.freeUs : facts.freeOp) : this.viewport.end;
    const margin = Math.max((to - from) * 0.15, this.leastX() / 2);
    this.viewport.setX(from - margin, to + margin);
    this.state.set({ block });
    this.moved();
  }

  zoom(factor: number, vertical = false): void {
    const { x0, x1, y0 } = this.viewport;
    const inside = this.cursorX !== null && this.cursorX >= x0 && this.cursorX <= x1;
    if (vertical) this.viewport.zoomY(factor, y0);
    else this.viewport.zoomX(factor, inside ? this.cursorX! : (x0 + x1) / 2);
    this.moved();
  }

  showAll(): void {
    this.viewport.showAll();
    this.moved();
  }

  // The peak with what leads to it: the stretch in which memory stays near it, with as much around,
  // and at most a quarter of the recording.
  async zoomToPeak(): Promise<void> {
    if (!this.ready) return;
    const kMostShare = 0.25;
    const { op, from, to } = await this.client.ask({ kind: 'peak', axis: this.state.now.axis });
    const { moment } = await this.client.ask({ kind: 'moment', op });
    const at = this.state.now.axis === 'time' ? moment.timeUs : op + 0.5;
    const width = Math.max(this.leastX(),
                           Math.min(2 * (to - from), kMostShare * this.viewport.end));
    // The stretch in the middle where all of it fits in, else the peak.
    const middle = to - from <= width ? (from + to) / 2 : at;
    this.viewport.setX(middle - width / 2, middle + width / 2);
    [this.viewport.y0, this.viewport.y1] = [0, this.viewport.top];
    this.state.set({ cursorOp: op });
    this.moved();
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.ready) return;
    const big = event.shiftKey;
    const actions: Record<string, () => void> = {
      ArrowLeft: () => this.step(-1, big), ArrowRight: () => this.step(1, big),
      ArrowUp: () => void this.climb(1), ArrowDown: () => void this.climb(-1),
      '+': () => this.zoom(0.6), '=': () => this.zoom(0.6), '-': () => this.zoom(1 / 0.6),
      '*': () => this.zoom(0.6, true), '_': () => this.zoom(1 / 0.6, true), '0': () => this.showAll(),
      PageUp: () => { this.viewport.pan(-this.viewport.width / 2, 0); this.moved(); },
      PageDown: () => { this.viewport.pan(this.viewport.width / 2, 0); this.moved(); },
      Home: () => this.goTo(0), End: () => this.goTo(this.ops - 1),
      m: () => this.nextMark(1), M: () => this.nextMark(-1),
      z: () => { if (this.state.now.block !== null) void this.zoomToBlock(this.state.now.block); },
    };
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  goTo(op: number): void {
    this.state.set({ cursorOp: Math.max(0, Math.min(op, this.ops - 1)) });
    void this.client.ask({ kind: 'moment', op: this.state.now.cursorOp }).then(() => this.showCursor());
  }

  // A hundredth of the view, or one operation.
  private step(direction: number, single: boolean): void {
    const op = this.state.now.cursorOp;
    if (single || this.cursorX === null) return this.goTo(op + direction);
    const x = this.cursorX + direction * this.viewport.width / 100;
    void this.client.ask({ kind: 'at', axis: this.state.now.axis, x }).then((answer) =>
      this.goTo(answer.op === op || (answer.op - op) * direction < 0 ? op + direction : answer.op));
  }

  // The block above or below the chosen one at this moment; the lowest to begin with.
  private async climb(direction: number): Promise<void> {
    const { cursorOp, block } = this.state.now;
    let height = 0;
    if (block !== null) {
      const found = await this.client.ask({ kind: 'where', op: cursorOp, block });
      if (found.to > found.from) height = direction > 0 ? found.to : found.from - 1;
    }
    const { facts } = await this.client.ask({ kind: 'find', op: cursorOp, height });
    if (facts) this.state.set({ block: facts.block });
  }

  private nextMark(direction: number): void {
    if (!this.marks) return;
    const ops = [...this.marks.op].filter((_, i) => this.marks!.kind[i] <= 4);
    const now = this.state.now.cursorOp;
    const next = direction > 0 ? ops.find((op) => op > now) : ops.reverse().find((op) => op < now);
    if (next !== undefined) this.goTo(next);
  }
}

// A stack with the user's own frames first; those of libraries are folded below them.
export function stackList(stack: number[], names: Names, most: number): HTMLElement[] {
  const own = stack.filter((frame) => names.frame_own[frame] === 1);
  const first = own.length > 0 ? own : stack;
  const list = (frames: number[]) => el('ol', { class: 'stack' },
    ...frames.map((frame) => el('li', {}, names.frames[frame])));
  const out: HTMLElement[] = [list(first.slice(0, most))];
  if (first.length > most) {
    out.push(el('p', { class: 'note' }, `and ${format.plural(first.length - most, 'frame')} more`));
  } else if (own.length > 0 && own.length < stack.length && most > kTipFrames) {
    out.push(el('details', {},
      el('summary', {}, `The whole stack: ${format.plural(stack.length, 'frame')}, ` +
        `${stack.length - own.length} of libraries`), list(stack)));
  }
  return out;
}
const kTipFrames = 3;

// A block in words: size, when, from where; the innermost frames of its stack.
export function describeBlock(facts: BlockFacts, names: Names, summary: Summary,
                              frames: number): HTMLElement[] {
  const group = names.groups[names.place_group[facts.place]];
  const tag = names.place_tag[facts.place];
  const stack = names.stacks[names.place_stack[facts.place]] ?? [];
  const freed = Number.isFinite(facts.freeUs);
  const when = (us: number, event: number) => format.moment(summary.timed, us, event, 1e3);
  const length = summary.timed ? format.time(facts.freeUs - facts.allocUs)
    : format.plural(facts.freeEvent - facts.allocEvent, 'event');
  const life = freed
    ? `${when(facts.allocUs, facts.allocEvent)} to ${when(facts.freeUs, facts.freeEvent)}, ${length} long`
    : `from ${when(facts.allocUs, facts.allocEvent)}, never freed in this recording`;
  const out: HTMLElement[] = [
    el('p', { class: 'size' }, format.bytes(facts.size)),
    el('p', {}, summary.grouped_by === 'size' ? `Allocation ${format.count(facts.block + 1)}` : group),
    el('p', {}, `Live ${life}`),
  ];
  if (facts.category !== null) out.push(el('p', {}, `Category: ${names.categories[facts.category]}`));
  if (facts.waitUs >= 100) {
    out.push(el('p', {}, `Freed by the program ${format.time(facts.waitUs)} before the allocator took it back`));
  }
  if (summary.streams > 1) out.push(el('p', {}, `Stream ${names.streams[facts.stream]}`));
  if (tag) out.push(el('p', {}, `Tag ${tag}`));
  if (stack.length > 1) out.push(...stackList(stack, names, frames));
  return out;
}
