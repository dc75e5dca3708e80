// Each failure of the recording: what was asked for, and what was live then.
import type { Names, OutOfMemory, Summary } from '../data/summary';
import type { Client } from './client';
import { byId, el } from './dom';
import * as format from './format';
import { momentTables } from './tables';

const kMostShown = 20;

export class Failures {
  private names: Names | null = null;

  constructor(
    private readonly summary: Summary,
    private readonly client: Client,
    private readonly goTo: (op: number) => void,
  ) {
    byId('failures').hidden = summary.out_of_memory.length === 0;
  }

  start(names: Names): void {
    this.names = names;
    const { out_of_memory: all } = this.summary;
    if (all.length === 0) return;
    const shown = all.slice(0, kMostShown).map((failure, i) => this.one(failure, i));
    byId('failures').replaceChildren(
      el('h2', { id: 'failures-title' }, 'At a failure'), ...shown,
      ...(all.length > kMostShown
        ? [el('p', { class: 'note' }, `${all.length - kMostShown} later failures are left out.`)] : []));
  }

  private one(failure: OutOfMemory, index: number): HTMLElement {
    const { timed } = this.summary;
    const inside = el('div');
    const box = el('details', { class: 'failure-details' },
      el('summary', {}, `Failure ${index + 1} at ${format.moment(timed, failure.time_us, failure.event, 1e5)}: ` +
        `${format.bytes(failure.requested_bytes)} requested, ${format.bytes(failure.live_bytes)} live`),
      inside);
    const show = async () => {
      if (inside.childElementCount > 0 || !this.names) return;
      const op = failure.operation - 1;  // the state right before the request
      if (op < 0) {
        inside.replaceChildren(el('p', {}, 'Nothing that was recorded was live.'));
        return;
      }
      const { moment } = await this.client.ask({ kind: 'moment', op });
      inside.replaceChildren(
        ...(failure.stack.length > 0
          ? [el('p', {}, 'The request came from:'),
             el('ol', { class: 'stack' }, ...failure.stack.map((frame) => el('li', {}, frame)))] : []),
        el('p', {}, el('button', { type: 'button', onclick: () => this.goTo(op) },
                       'Show this moment in the plot')),
        ...momentTables(moment, this.names, this.summary, 'Live at the failure'));
    };
    box.addEventListener('toggle', () => void show());
    if (index === 0) box.open = true;
    return box;
  }
}
