// The same as the pictures, as tables: for screen readers, for copying, for exact figures.
import type { Names, Summary } from '../data/summary';
import type { BlockFacts, MarkList, Moment, TimelineRow } from '../worker/protocol';
import type { Client } from './client';
import { byId, el, table } from './dom';
import * as format from './format';

const kMarkNames = ['segment allocated', 'segment freed', 'pages mapped', 'pages unmapped',
                    'out of memory', 'phase begins', 'phase ends', 'snapshot taken', 'other',
                    'fell asleep, contents on the host', 'fell asleep, contents lost', 'woke'];

// What is live at a moment, by category and by call site.
export function momentTables(moment: Moment, names: Names, summary: Summary,
                             title: string): HTMLElement[] {
  const kMost = 200;
  const rows = moment.groups.slice(0, kMost);
  const rest = moment.groups.length - rows.length;
  const by = (what: string, row: (group: number) => string, from: Moment['groups'], more: string) =>
    table(`${title}, by ${what}: ${format.bytes(moment.live)} in ` +
          `${format.plural(moment.blocks, 'allocation')}${more}`, [
      { title: what.charAt(0).toUpperCase() + what.slice(1), text: true,
        cell: ({ group }) => row(group) },
      { title: 'Bytes', cell: ({ bytes }) => el('span', { 'data-bytes': String(bytes) },
                                                format.bytes(bytes)) },
      { title: 'Share', cell: ({ bytes }) => format.percent(bytes / Math.max(1, moment.live)) },
      { title: 'Allocations', cell: ({ blocks }) => format.count(blocks) },
    ], from);
  const out: HTMLElement[] = [];
  if (moment.categories.length > 0) {
    out.push(by('category', (category) => names.categories[category], moment.categories, ''));
  }
  out.push(by(summary.grouped_by, (group) => names.groups[group], rows,
              rest > 0 ? `; the ${format.count(rest)} smallest rows are left out` : ''));
  return out;
}

export class Tables {
  private readonly atMoment = el('div');
  private readonly overTime = el('div');
  private readonly events = el('div');
  private names: Names | null = null;

  constructor(
    private readonly summary: Summary,
    private readonly client: Client,
    private readonly choose: (block: number) => void,
    private readonly goTo: (op: number) => void,
  ) {
    const fold = (title: string, inside: HTMLElement, open = false) => {
      const made = el('details', {}, el('summary', {}, title), inside);
      made.open = open;
      return made;
    };
    const timeline = fold(summary.timed ? 'Memory over time' : 'Memory by event', this.overTime);
    timeline.addEventListener('toggle', () => void this.showTimeline());
    byId('tables').append(fold('Live at the moment chosen', this.atMoment, true), timeline,
                          fold('Events', this.events));
  }

  start(names: Names, marks: MarkList): void {
    this.names = names;
    this.showEvents(names, marks);
  }

  setMoment(moment: Moment): void {
    const { names, summary } = this;
    if (!names) return;
    const by = summary.grouped_by === 'size' ? 'Size' : 'Call site';
    const when = (us: number, event: number) => format.moment(summary.timed, us, event, 1e3);
    this.atMoment.replaceChildren(
      ...momentTables(moment, names, summary, `Live at ${when(moment.timeUs, moment.event)}`),
      table<BlockFacts>('The largest allocations then', [
        { title: 'Allocation', cell: (row) => el('button', { type: 'button', class: 'link',
            onclick: () => this.choose(row.block) }, format.count(row.block + 1)) },
        { title: 'Bytes', cell: (row) => format.bytes(row.size) },
        { title: by, text: true, cell: (row) => names.groups[names.place_group[row.place]] },
        { title: 'Allocated', cell: (row) => when(row.allocUs, row.allocEvent) },
        { title: 'Freed', cell: (row) => (Number.isFinite(row.freeUs)
            ? when(row.freeUs, row.freeEvent) : 'never') },
        { title: 'Stream', cell: (row) => String(names.streams[row.stream]) },
      ], moment.largest));
  }

  private async showTimeline(): Promise<void> {
    if (this.overTime.childElementCount > 0 || !this.names) return;
    const { rows } = await this.client.ask({
      kind: 'timeline', rows: 60, axis: this.summary.timed ? 'time' : 'event' });
    this.overTime.replaceChildren(table<TimelineRow>('Most live bytes, and most held by each policy, in 60 equal steps', [
      { title: 'Until', cell: (row) => format.moment(this.summary.timed, row.timeUs, row.event, 1e4) },
      { title: 'Live', cell: (row) => format.bytes(row.live) },
      ...this.summary.policies.map((policy, i) => ({
        title: policy.policy,
        cell: (row: TimelineRow) => (Number.isNaN(row.held[i]) ? '–' : format.bytes(row.held[i])) })),
    ], rows));
  }

  private showEvents(names: Names, marks: MarkList): void {
    const kMost = 400;
    const all = Array.from(marks.op.keys());
    // Failures first: they are why somebody looks.
    const order = all.filter((i) => marks.kind[i] === 4).concat(all.filter((i) => marks.kind[i] !== 4));
    const failures = this.summary.policies.filter((policy) => policy.out_of_memory);
    this.events.replaceChildren(
      ...failures.map((policy) => el('p', { class: 'failed' },
        `${policy.policy}: ${policy.out_of_memory_message ?? 'out of memory'}`)),
      ...this.summary.warnings.map((warning) => el('p', { class: 'note' }, warning)),
      all.length === 0 ? el('p', { class: 'note' }, 'The recording has no events besides allocations and frees.')
        : table(`${format.plural(all.length, 'event')} besides allocations and frees` +
                (all.length > kMost ? `; the first ${kMost} are shown` : ''), [
          { title: 'Event', text: true, cell: (i: number) => kMarkNames[marks.kind[i]] ?? 'other' },
          { title: 'Bytes', cell: (i) => (marks.bytes[i] > 0 ? format.bytes(marks.bytes[i]) : '–') },
          { title: 'Name', text: true, cell: (i) => names.mark_texts[marks.text[i]] ?? '' },
          ...(this.summary.timed
            ? [{ title: 'At', cell: (i: number) => format.time(marks.timeUs[i], 1e3) }] : []),
          { title: 'After operation', cell: (i) => el('button', { type: 'button', class: 'link',
              onclick: () => this.goTo(marks.op[i] - 1) }, format.count(marks.op[i])) },
        ], order.slice(0, kMost)));
  }
}
