// Every policy's figures, and which of them the plot and the map show.
import type { PolicyFigures, Summary } from '../data/summary';
import { byId, el, table } from './dom';
import * as format from './format';
import { kDashes } from './plot_paint';
import type { State } from './state';

function dashSample(index: number): SVGSVGElement {
  const ns = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(ns, 'svg');
  svg.setAttribute('width', '44');
  svg.setAttribute('height', '10');
  svg.setAttribute('aria-hidden', 'true');
  const line = document.createElementNS(ns, 'line');
  for (const [name, value] of Object.entries({
    x1: '0', x2: '44', y1: '5', y2: '5', stroke: 'currentColor', 'stroke-width': '2',
    'stroke-dasharray': kDashes[index % kDashes.length].join(' ') || 'none' })) {
    line.setAttribute(name, value);
  }
  svg.append(line);
  return svg;
}

// Which line belongs to which policy, for those that are shown.
export function showLines(summary: Summary, state: State): void {
  const shown = summary.policies.map(({ policy }, index) => ({ policy, index }))
    .filter(({ index }) => state.now.policies.has(index));
  byId('lines').replaceChildren(...shown.map(({ policy, index }) =>
    el('li', {}, dashSample(index) as unknown as Node, ` held by ${policy}`)));
}

function recordedOutcome(summary: Summary): HTMLElement | string {
  const failures = summary.out_of_memory.length;
  return failures === 0 ? 'as it was'
    : el('span', { class: 'failed' }, `ran out of memory ${format.plural(failures, 'time')}`);
}

export function showPolicies(summary: Summary, state: State): void {
  const policies = summary.policies.map((figures, index) => ({ figures, index }));
  byId('policies-note').textContent = policies.length === 0
    ? 'None were replayed.'
    : (summary.policies[0].recorded ? 'The first line is the recording itself. ' : '') +
      'The same program replayed over each allocator on a simulated device: most bytes held from the ' +
      `driver, caches included${summary.capacity_bytes === null ? ''
        : `, on a device of ${format.bytes(summary.capacity_bytes)}`}. No allocator can hold less than ` +
      `the live peak, ${format.bytes(summary.live_peak_bytes)}.`;
  if (policies.length === 0) return;
  const least = Math.min(...policies.filter(({ figures }) => !figures.out_of_memory)
    .map(({ figures }) => figures.reserved_peak_bytes).filter((bytes) => bytes > 0));
  const us = (value: number | null) => value === null ? '–' : value === 0 ? '0' : format.time(value);
  type Row = { figures: PolicyFigures; index: number };
  byId('policies').replaceChildren(table<Row>('Figures of each policy', [
    { title: 'Policy', text: true, cell: ({ figures, index }) => {
      const box = el('input', { type: 'checkbox', onchange: (event) => {
        const shown = new Set(state.now.policies);
        if ((event.target as HTMLInputElement).checked) shown.add(index);
        else shown.delete(index);
        state.set({ policies: shown });
      } });
      box.checked = state.now.policies.has(index);
      return el('label', {}, box, ' ', figures.policy, ' ', dashSample(index) as unknown as Node);
    } },
    { title: 'Held at most', cell: ({ figures: f }) => el('span', {
      class: f.reserved_peak_bytes === least && !f.out_of_memory ? 'best' : '',
      'data-policy': f.policy, 'data-bytes': String(f.reserved_peak_bytes) },
      format.bytes(f.reserved_peak_bytes)) },
    { title: '/ live peak', cell: ({ figures: f }) =>
      (f.reserved_peak_bytes / Math.max(1, summary.live_peak_bytes)).toFixed(3) },
    { title: 'Fragmentation', cell: ({ figures: f }) => format.percent(f.fragmentation) },
    { title: 'Driver calls', cell: ({ figures: f }) => format.count(f.driver_calls) },
    { title: 'Driver stall', cell: ({ figures: f }) => us(f.driver_stall_us) },
    { title: 'Moving stall', cell: ({ figures: f }) => us(f.moving_stall_us) },
    { title: 'Outcome', text: true, cell: ({ figures: f }) => f.out_of_memory
      ? el('span', { class: 'failed' }, `out of memory at event ${format.count(f.out_of_memory_event ?? 0)}`)
      : f.recorded ? recordedOutcome(summary) : 'completes' },
    { title: 'Map', text: true, cell: ({ figures, index }) => el('button', { type: 'button',
      'aria-label': `Show the address map of ${figures.policy}`,
      onclick: () => {
        state.set({ mapPolicy: index });
        byId('map-title').scrollIntoView({ block: 'nearest' });
      } }, 'Map') },
  ], policies));
}
