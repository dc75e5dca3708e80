// What somebody whose program ran out of memory wants to know first: how much, when, from where,
// and what would have helped.
import type { PolicyFigures, Summary } from '../data/summary';
import { byId, el } from './dom';
import * as format from './format';

export function showFacts(summary: Summary, goTo: (op: number) => void, goToPeak: () => void,
                          search: (text: string) => void): void {
  byId('title').textContent = summary.trace;
  byId('about').textContent =
    `${summary.file} · ${format.plural(summary.events, 'allocation and free', 'allocations and frees')} ` +
    `${summary.timed ? `in ${format.time(summary.trace_duration_us)} ` : ''}· ${format.plural(summary.streams, 'stream')}`;
  const facts: (HTMLElement | null)[] = [
    outOfMemory(summary, goTo), headline(summary, goToPeak), cards(summary, search),
    held(summary)];
  byId('facts').replaceChildren(...facts.filter((fact) => fact !== null));
}

function outOfMemory(summary: Summary, goTo: (op: number) => void): HTMLElement | null {
  const [first] = summary.out_of_memory;
  if (!first) return null;
  const more = summary.out_of_memory.length - 1;
  return el('p', { class: 'oom', role: 'alert' },
    el('strong', {}, 'Out of memory'), ' at ',
    el('button', { type: 'button', class: 'link', onclick: () => goTo(first.operation - 1) },
       format.moment(summary.timed, first.time_us, first.event, 1e5)),
    `: ${format.bytes(first.requested_bytes)} were asked for while ${format.bytes(first.live_bytes)} were ` +
    'in use',
    first.device_free_bytes === null ? '' : ` and the device had ${format.bytes(first.device_free_bytes)} left`,
    more > 0 ? `; and ${format.plural(more, 'time')} more.` : '.');
}

function headline(summary: Summary, goToPeak: () => void): HTMLElement {
  const share = summary.timed ? summary.live_peak_time_us / Math.max(1, summary.trace_duration_us)
    : summary.live_peak_event / Math.max(1, summary.events);
  return el('p', { class: 'headline' },
    'Peak ', el('strong', { id: 'peak' }, format.bytes(summary.live_peak_bytes)), ' at ',
    el('button', { type: 'button', class: 'link', id: 'peak-time', onclick: goToPeak },
       format.moment(summary.timed, summary.live_peak_time_us, summary.live_peak_event, 1e5)),
    ` (${format.percent(share)} of the way), in ${format.plural(summary.live_peak_allocations, 'allocation')}. ` +
    `Largest then, by ${summary.grouped_by}:`);
}

function cards(summary: Summary, search: (text: string) => void): HTMLElement {
  const list = el('ol', { class: 'cards' });
  summary.largest_at_peak.slice(0, 3).forEach((group, i) => list.append(
    el('li', { style: `--swatch: var(--class-${i})` },
      el('span', { class: 'amount' }, format.bytes(group.bytes)),
      ` · ${format.percent(group.bytes / summary.live_peak_bytes)} · ` +
      format.plural(group.allocations, 'allocation'),
      el('button', { type: 'button', class: 'link site', title: 'Search for it',
                     onclick: () => search(group.name) },
         summary.grouped_by === 'size' ? `of ${group.name} each` : group.name))));
  return list;
}

// What the driver had to give, as recorded or under PyTorch's allocator, and under the best one.
function held(summary: Summary): HTMLElement {
  const fits = summary.policies.filter((policy) => !policy.out_of_memory);
  const say = (policy: PolicyFigures, name: string) =>
    `${name} ${policy.recorded ? 'held' : 'would hold'} ${format.bytes(policy.reserved_peak_bytes)} ` +
    `(${(policy.reserved_peak_bytes / Math.max(1, summary.live_peak_bytes)).toFixed(2)} × the peak)`;
  const recorded = fits.find((policy) => policy.recorded);
  const pytorch = recorded ?? fits.find((policy) => policy.policy === 'caching');
  const live = fits.filter((policy) =>
    policy.policy !== 'plan' && !policy.recorded && policy.reserved_peak_bytes > 0);
  const best = live.reduce<PolicyFigures | null>(
    (a, b) => (a === null || b.reserved_peak_bytes < a.reserved_peak_bytes ? b : a), null);
  const parts: string[] = [];
  if (pytorch) parts.push(say(pytorch, recorded ? 'Its allocator' : 'PyTorch’s allocator (caching)'));
  if (best && best !== pytorch) parts.push(say(best, best.policy));
  const failed = summary.policies.filter((policy) => policy.out_of_memory);
  if (failed.length > 0 && summary.capacity_bytes !== null) {
    parts.push(`within ${format.bytes(summary.capacity_bytes)} run out of memory: ` +
               failed.map((policy) => policy.policy).join(', '));
  }
  return el('p', { class: 'held' }, parts.length > 0 ? `${parts.join('; ')}.` : '');
}
