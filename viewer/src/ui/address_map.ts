// Where everything lay at the chosen moment, under one policy.
import type { Names, Summary } from '../data/summary';
import type { Client } from './client';
import { byId, el } from './dom';
import * as format from './format';
import type { State } from './state';

const kRowCss = 15;

export class AddressMap {
  private readonly canvas = byId<HTMLCanvasElement>('map');
  private readonly select = byId<HTMLSelectElement>('map-policy');
  private readonly figures = byId('map-figures');
  private ids: Int32Array | null = null;
  private busy = false;
  private wanted = false;
  private started = false;
  names: Names | null = null;

  constructor(
    private readonly summary: Summary,
    private readonly client: Client,
    private readonly state: State,
  ) {
    summary.policies.forEach((policy, i) =>
      this.select.append(el('option', { value: String(i) }, policy.policy)));
    this.select.value = String(state.now.mapPolicy);
    this.select.addEventListener('change', () =>
      state.set({ mapPolicy: Number(this.select.value) }));
    state.on(['cursorOp', 'mapPolicy', 'theme', 'matches', 'grouping', 'block'], () => this.invalidate());
    state.on(['mapPolicy'], () => (this.select.value = String(state.now.mapPolicy)));
    new ResizeObserver(() => this.invalidate()).observe(byId('map-box'));
    this.canvas.addEventListener('pointerdown', (event) => this.choose(event));
    if (summary.policies.length === 0) {
      this.select.disabled = true;
      this.figures.textContent = 'No policy was replayed: tenon view --policy caching shows its map.';
    }
  }

  start(names: Names): void {
    this.names = names;
    this.started = true;
    this.invalidate();
  }

  get settled(): boolean { return !this.busy && !this.wanted; }

  invalidate(): void {
    if (!this.started || this.summary.policies.length === 0 || this.summary.events === 0) return;
    this.wanted = true;
    void this.request();
  }

  private async request(): Promise<void> {
    if (this.busy || !this.wanted) return;
    this.wanted = false;
    this.busy = true;
    const ratio = window.devicePixelRatio || 1;
    const host = byId('map-box');
    const width = Math.max(1, Math.round(host.clientWidth * ratio));
    const height = Math.max(1, Math.round(host.clientHeight * ratio));
    const answer = await this.client.ask({
      kind: 'map', policy: this.state.now.mapPolicy, op: this.state.now.cursorOp, width, height,
      rowHeight: Math.max(3, Math.round(kRowCss * ratio)) });
    this.busy = false;
    this.ids = answer.ids;
    this.canvas.width = width;
    this.canvas.height = height;
    const context = this.canvas.getContext('2d')!;
    context.putImageData(new ImageData(answer.pixels, width, height), 0, 0);
    this.markChosen(context, width, height, ratio);
    const { policy, ops_done, recorded } = this.summary.policies[answer.policy];
    const text = answer.op >= ops_done
      ? `${policy} had run out of memory before this moment.`
      : `${recorded ? 'As recorded, the allocator' : policy} holds ${format.bytes(answer.held)}; ${format.bytes(answer.live)} of it in use by ` +
        `${format.plural(answer.blocks, 'allocation')}. Fragmentation ` +
        `${format.percent(answer.held > 0 ? 1 - answer.live / answer.held : 0)}: ` +
        `${format.bytes(answer.free)} free in ${format.plural(answer.holes, 'stretch', 'stretches')}, ` +
        `the longest ${format.bytes(answer.largestFree)}.`;
    this.figures.textContent = text;
    this.canvas.setAttribute('aria-label', `Address map. ${text}`);
    if (this.wanted) void this.request();
  }

  private markChosen(context: CanvasRenderingContext2D, width: number, height: number,
                     ratio: number): void {
    const { block } = this.state.now;
    if (block === null || !this.ids) return;
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--ink');
    const thick = Math.max(2, Math.round(2 * ratio));
    for (let y = 0; y < height; ++y) {
      for (let x = 0; x < width; ++x) {
        if (this.ids[y * width + x] !== block) continue;
        const edge = x < thick || y < thick || x + thick >= width || y + thick >= height ||
          this.ids[y * width + x - thick] !== block || this.ids[y * width + x + thick] !== block ||
          this.ids[(y - thick) * width + x] !== block || this.ids[(y + thick) * width + x] !== block;
        if (edge) context.fillRect(x, y, 1, 1);
      }
    }
  }

  private choose(event: PointerEvent): void {
    if (!this.ids) return;
    const rect = this.canvas.getBoundingClientRect();
    const x = Math.floor((event.clientX - rect.left) / rect.width * this.canvas.width);
    const y = Math.floor((event.clientY - rect.top) / rect.height * this.canvas.height);
    const block = this.ids[y * this.canvas.width + x];
    if (block >= 0) this.state.set({ block });
  }
}
