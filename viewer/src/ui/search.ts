// Searching call sites: what matches stays bright, the rest fades.
import type { Names, Summary } from '../data/summary';
import type { Client } from './client';
import { byId, el, table } from './dom';
import * as format from './format';
import type { State } from './state';

// Every word must occur somewhere in the names of a place: its group, tag or any frame of its stack.
export function matchPlaces(names: Names, query: string): Uint8Array {
  const words = query.toLowerCase().split(/\s+/).filter((word) => word !== '');
  const frames = names.frames.map((frame) => frame.toLowerCase());
  const stacks = names.stacks.map((stack) => stack.map((frame) => frames[frame]).join('\n'));
  const groups = names.groups.map((group) => group.toLowerCase());
  return Uint8Array.from(names.place_group, (group, place) => {
    const text = `${groups[group]}\n${stacks[names.place_stack[place]] ?? ''}\n` +
      names.place_tag[place].toLowerCase();
    return words.every((word) => text.includes(word)) ? 1 : 0;
  });
}

export class Search {
  private readonly input = byId<HTMLInputElement>('search');
  private readonly results = byId('search-results');
  private names: Names | null = null;
  private asked = 0;
  private timer = 0;

  constructor(
    private readonly summary: Summary,
    private readonly client: Client,
    private readonly state: State,
    private readonly goTo: (op: number) => void,
  ) {
    this.input.placeholder =
      summary.grouped_by === 'size' ? 'Search sizes, as 64 MiB' : 'Search call sites';
    this.input.addEventListener('input', () => {
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => void this.run(), 120);
    });
    byId('search-form').addEventListener('submit', (event) => {
      event.preventDefault();
      clearTimeout(this.timer);
      void this.run();
    });
  }

  start(names: Names): void {
    this.names = names;
    if (this.input.value !== '') void this.run();
  }

  focus(): void {
    this.input.focus();
    this.input.select();
  }

  set(text: string): void {
    this.input.value = text;
    void this.run();
  }

  private async run(): Promise<void> {
    const { names } = this;
    if (!names) return;
    const query = this.input.value.trim();
    const asked = ++this.asked;
    const matches = query === '' ? null : matchPlaces(names, query);
    const answer = this.client.ask({ kind: 'match', matches });
    this.state.set({ matches: this.state.now.matches + 1 });
    const { figures } = await answer;
    if (asked !== this.asked) return;
    this.results.hidden = figures === null;
    if (!figures) return;
    const peak = this.summary.live_peak_bytes;
    const said = figures.allocations === 0
      ? `Nothing matches “${query}”.`
      : `${format.plural(figures.allocations, 'allocation')} of ${format.bytes(figures.bytes)} in all; ` +
        `${format.bytes(figures.bytesAtPeak)} at the peak (${format.percent(figures.bytesAtPeak / Math.max(1, peak))}).`;
    this.results.replaceChildren(
      el('p', { role: 'status', id: 'search-said', 'data-allocations': String(figures.allocations),
                'data-bytes': String(figures.bytes), 'data-peak': String(figures.bytesAtPeak) }, said));
    if (figures.allocations === 0) return;
    this.results.append(
      el('p', {}, `Most at once: ${format.bytes(figures.most)}. `,
         el('button', { type: 'button', class: 'link', onclick: () => this.goTo(figures.mostOp) },
            'Go there')));
    if (figures.atPeak.length > 0) {
      this.results.append(table('At the peak', [
        { title: this.summary.grouped_by === 'size' ? 'Size' : 'Call site', text: true,
          cell: (row) => names.groups[row.group] },
        { title: 'Bytes', cell: (row) => format.bytes(row.bytes) },
        { title: 'Allocations', cell: (row) => format.count(row.blocks) },
      ], figures.atPeak.slice(0, 30)));
    }
  }
}
