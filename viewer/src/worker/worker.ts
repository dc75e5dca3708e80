// Everything that takes time happens here, beside the page: unpacking, drawing, summing.
import type { ColumnInfo, Names, Summary } from '../data/summary';
import { columnOps, opAt } from './axis';
import { Colours, type Palette } from './colours';
import { ColumnsIn } from './columns_in';
import { LiveStack } from './live_stack';
import { markColumns } from './marks';
import { Model } from './model';
import { rasterise } from './plot_raster';
import { PolicyData } from './policy_data';
import type { Answer, Grouping, MarkList, Request, StackOrder } from './protocol';
import { blockFacts, matchFigures, momentAt, outlineByOps, timeline } from './tables';

type Of<K extends Request['kind']> = Extract<Request, { kind: K }>;

function say(answer: Answer, transfer: Transferable[] = []): void {
  (self as unknown as { postMessage(a: Answer, t: Transferable[]): void })
    .postMessage(answer, transfer);
}

class Server {
  private columns!: ColumnsIn;
  private model!: Model;
  private names!: Names;
  private marks!: MarkList;
  private policies: PolicyData[] = [];
  private stack!: LiveStack;
  private order: StackOrder = 'allocation';
  private palette: Palette | null = null;
  private grouping: Grouping = 'site';
  private classes: number[] = [];
  private matches: Uint8Array | null = null;
  private colours: Colours | null = null;

  async open({ summary, base }: Of<'open'>): Promise<void> {
    const start = performance.now();
    const all = summary.columns.reduce((sum, c) => sum + (this.isLate(c) ? 0 : c.pieces), 0);
    let done = 0;
    this.columns = new ColumnsIn(
      summary.columns, summary.source === 'server' ? base : null,
      (info) => say({ kind: 'needs', columns: [info] }),
      () => say({ kind: 'progress', done: Math.min(all, ++done), all }));
    const read = (name: string) => this.columns.numbers(name);
    const [timeUs, freed, size, place, stream, wait, event, names, marks] = await Promise.all([
      read('time_us'), read('freed'), read('size'), read('place'), read('stream'),
      read('wait_us'), read('event'), this.columns.text('names'), this.readMarks()]);
    this.names = JSON.parse(names) as Names;
    this.marks = marks;
    const category = summary.columns.some((column) => column.name === 'category')
      ? await read('category') : null;
    this.model = new Model(timeUs, freed, size, place, stream, wait, event, category);
    await this.readPolicies(summary);
    this.stack = new LiveStack(this.model, null, null);
    const { ops, peakOp } = this.model;
    say({ kind: 'ready', names: this.names, marks, ops, peakOp,
          outline: outlineByOps(this.model, summary.outline.length),
          endUs: ops === 0 ? 0 : timeUs[ops - 1], milliseconds: performance.now() - start });
  }

  // Where blocks lie is read when a map is first asked for.
  private isLate(column: ColumnInfo): boolean {
    return /^p\d+\.(place|span_)/.test(column.name);
  }

  private async readMarks(): Promise<MarkList> {
    const [op, timeUs, kind, bytes, text] = await Promise.all(
      ['mark_op', 'mark_time_us', 'mark_kind', 'mark_bytes', 'mark_text'].map((n) => this.columns.numbers(n)));
    return { op: Float64Array.from(op), timeUs: Float64Array.from(timeUs), kind: Uint8Array.from(kind),
             bytes: Float64Array.from(bytes), text: Uint32Array.from(text) };
  }

  private async readPolicies(summary: Summary): Promise<void> {
    this.policies = await Promise.all(summary.policies.map(async (policy, i) => {
      const [heldOp, heldBytes] = await Promise.all([
        this.columns.numbers(`p${i}.held_op`), this.columns.numbers(`p${i}.held_bytes`)]);
      return new PolicyData(heldOp, heldBytes, policy.unit_bytes, policy.display_bytes,
                            policy.ops_done);
    }));
  }

  private async readPlaces(index: number): Promise<void> {
    const [place, spanFrom, spanTo, spanStart, spanSize] = await Promise.all(
      ['place', 'span_from', 'span_to', 'span_start', 'span_size']
        .map((name) => this.columns.numbers(`p${index}.${name}`)));
    this.policies[index].places = { place, spanFrom, spanTo, spanStart, spanSize };
  }

  piece({ name, piece, text }: Of<'piece'>): void {
    this.columns.accept(name, piece, text);
  }

  style({ palette, grouping, classes }: Of<'style'>): void {
    this.palette = palette;
    const regrouped = grouping !== this.grouping;
    this.grouping = grouping;
    this.classes = classes;
    this.recolour();
    if (regrouped && this.order === 'group') this.restack();
  }

  // The group or category of a block: an index into `classes`.
  private groupOf(block: number): number {
    const { category, place } = this.model;
    return this.grouping === 'category' && category !== null
      ? category[block] : this.names.place_group[place[block]];
  }

  private recolour(): void {
    if (!this.palette || !this.model) return;
    const classOf = new Uint8Array(this.model.blocks);
    for (let block = 0; block < classOf.length; ++block) {
      classOf[block] = this.classes[this.groupOf(block)];
    }
    this.colours = new Colours(this.palette, classOf, this.matches, this.model.place);
  }

  setOrder({ order }: Of<'order'>): void {
    if (order === this.order) return;
    this.order = order;
    this.restack();
  }

  private restack(): void {
    const { model, classes } = this;
    if (this.order === 'allocation') {
      this.stack = new LiveStack(model, null, null);
      return;
    }
    // Classes one above the other, largest lowest; within one, groups; within those, as allocated.
    const groupRank = Array.from(classes.keys()).sort((a, b) => classes[a] - classes[b] || a - b);
    const next = new Uint32Array(classes.length);
    for (let block = 0; block < model.blocks; ++block) ++next[this.groupOf(block)];
    let from = 0;
    for (const group of groupRank) {
      const count = next[group];
      next[group] = from;
      from += count;
    }
    const rank = new Uint32Array(model.blocks);
    const blockAt = new Uint32Array(model.blocks);
    for (let block = 0; block < model.blocks; ++block) {
      rank[block] = next[this.groupOf(block)]++;
      blockAt[rank[block]] = block;
    }
    this.stack = new LiveStack(model, rank, blockAt);
  }

  match({ id, matches }: Of<'match'>): void {
    this.matches = matches;
    this.recolour();
    const { place_group, groups } = this.names;
    say({ kind: 'match', id, figures: matches === null ? null
      : matchFigures(this.model, place_group, groups.length, matches) });
  }

  draw({ id, view, policies, marked }: Of<'draw'>): void {
    const start = performance.now();
    const { ids, most, ops } = rasterise(this.model, this.stack, view);
    const pixels = this.colours!.paint(ids, view.width, view.height);
    const until = columnOps(this.model, view);
    const held = policies.map((policy) =>
      ({ policy, most: this.policies[policy].heldMost(until) }));
    const marks = markColumns(this.model, this.marks, this.policies[marked] ?? null, view);
    say({ kind: 'draw', id, view, pixels, ids, most, ops, held, marks,
          milliseconds: performance.now() - start }, [pixels.buffer, ids.buffer]);
  }

  async map({ id, policy, op, width, height, rowHeight }: Of<'map'>): Promise<void> {
    if (this.policies[policy].places === null) await this.readPlaces(policy);
    const { ids, ...figures } =
      this.policies[policy].draw(this.model, op, width, height, rowHeight);
    const pixels = this.colours!.paint(ids, width, height);
    say({ kind: 'map', id, policy, width, height, pixels, ids, ...figures },
        [pixels.buffer, ids.buffer]);
  }

  moment({ id, op }: Of<'moment'>): void {
    const { place_group, groups, categories } = this.names;
    say({ kind: 'moment', id, moment: momentAt(this.model, place_group, groups.length,
                                               categories.length, this.policies, op) });
  }

  block({ id, block }: Of<'block'>): void {
    say({ kind: 'block', id, facts: blockFacts(this.model, block) });
  }

  find({ id, op, height }: Of<'find'>): void {
    this.stack.moveTo(op);
    const found = this.stack.find(height) ? { ...this.stack.found } : null;
    say({ kind: 'find', id, facts: found ? blockFacts(this.model, found.block) : null,
          from: found?.from ?? 0, to: found?.to ?? 0 });
  }

  // Where in the stack a block lies; nowhere (from = to) when it is not live.
  where({ id, op, block }: Of<'where'>): void {
    this.stack.moveTo(op);
    const from = this.model.isLive(block, op) ? this.stack.bottomOf(block) : 0;
    say({ kind: 'where', id, from,
          to: this.model.isLive(block, op) ? from + this.model.size[block] : from });
  }

  at({ id, axis, x }: Of<'at'>): void {
    say({ kind: 'at', id, op: opAt(this.model, axis, x), x });
  }

  peak({ id, axis }: Of<'peak'>): void {
    const kNear = 0.8;
    const { from, to } = this.model.nearPeak(kNear);
    const x = (op: number) => (axis === 'event' ? op : this.model.timeUs[op] ?? 0);
    say({ kind: 'peak', id, op: this.model.peakOp, from: x(from), to: x(to) });
  }

  timeline({ id, rows, axis }: Of<'timeline'>): void {
    say({ kind: 'timeline', id, rows: timeline(this.model, this.policies, rows, axis) });
  }
}

const server = new Server();

async function serve(request: Request): Promise<void> {
  switch (request.kind) {
    case 'open': return server.open(request);
    case 'piece': return server.piece(request);
    case 'style': return server.style(request);
    case 'order': return server.setOrder(request);
    case 'match': return server.match(request);
    case 'draw': return server.draw(request);
    case 'map': return server.map(request);
    case 'moment': return server.moment(request);
    case 'block': return server.block(request);
    case 'find': return server.find(request);
    case 'where': return server.where(request);
    case 'at': return server.at(request);
    case 'peak': return server.peak(request);
    case 'timeline': return server.timeline(request);
  }
}

self.onmessage = (message: MessageEvent<Request>) => {
  serve(message.data).catch((error: unknown) =>
    say({ kind: 'error', message: error instanceof Error ? error.message : String(error) }));
};
