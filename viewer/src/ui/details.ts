// The chosen moment and the chosen block, in words.
import type { Names, Summary } from '../data/summary';
import type { Moment } from '../worker/protocol';
import type { Client } from './client';
import { byId, el } from './dom';
import * as format from './format';
import { describeBlock } from './plot';
import type { State } from './state';

export class Details {
  private readonly host = byId('details');
  private names: Names | null = null;
  private moment: Moment | null = null;
  private said: number | null = null;

  constructor(
    private readonly summary: Summary,
    private readonly client: Client,
    private readonly state: State,
    private readonly zoomTo: (block: number) => void,
  ) {
    state.on(['block'], () => void this.show());
  }

  start(names: Names): void {
    this.names = names;
  }

  setMoment(moment: Moment): void {
    this.moment = moment;
    void this.show();
  }

  private async show(): Promise<void> {
    if (!this.names || !this.moment) return;
    const { moment, names } = this;
    const children: HTMLElement[] = [
      el('h3', {}, `Moment: ${this.summary.timed
        ? `${format.time(moment.timeUs, 1e3)}, ` : ''}event ${format.count(moment.event)}`),
      el('p', {}, `${format.bytes(moment.live)} live in ${format.plural(moment.blocks, 'allocation')}; ` +
                  (moment.freed ? 'a block was freed.' : 'a block was allocated.'))];
    const held = this.summary.policies
      .map((policy, i) => `${policy.policy} ${Number.isNaN(moment.held[i]) ? '–' : format.bytes(moment.held[i])}`);
    if (held.length > 0) children.push(el('p', { class: 'note' }, `Held: ${held.join(', ')}`));
    const block = this.state.now.block ?? moment.block;
    const { facts } = await this.client.ask({ kind: 'block', block });
    if (this.moment !== moment || (this.state.now.block ?? moment.block) !== block) return;
    children.push(
      el('h3', {}, this.state.now.block === null
        ? (moment.freed ? 'The block freed' : 'The block allocated') : 'The block chosen'),
      ...describeBlock(facts, names, this.summary, 200),
      el('button', { type: 'button', onclick: () => this.zoomTo(block) }, 'Zoom to its life'));
    this.host.replaceChildren(...children);
    // Moments are read out by the plot, as a slider's value; a block that is chosen here.
    if (this.state.now.block !== null && this.said !== block) {
      byId('said').textContent =
        describeBlock(facts, names, this.summary, 1).map((line) => line.textContent).join('. ');
    }
    this.said = this.state.now.block;
  }
}
