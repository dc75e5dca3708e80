// The answer first: what fills the peak, and what to change.
import type { Summary, Verdict } from '../data/summary';
import { byId, el } from './dom';
import * as format from './format';
import { kClasses } from './theme';

// The largest categories have colours of their own, the rest share one.
export function categoryClass(verdict: Verdict | null, category: number): number {
  const at = verdict?.categories.findIndex((one) => one.category === category) ?? -1;
  return at < 0 ? kClasses - 1 : Math.min(at, kClasses - 1);
}

export function showVerdict(summary: Summary, chosen: (category: number) => void): void {
  const { verdict } = summary;
  const host = byId('verdict');
  host.hidden = verdict === null;
  if (verdict === null) return;
  const parts: HTMLElement[] = verdict.sentences.map((text, i) =>
    el('p', { class: i === 0 ? 'lead' : '' }, text));
  if (verdict.changes.length > 0) {
    parts.push(el('details', {}, el('summary', {}, 'How to change it, and how the savings are measured'),
      el('ol', { class: 'changes' }, ...verdict.changes.map((text) => el('li', {}, text)))));
  }
  if (verdict.categories.length > 0) {
    parts.push(el('h3', {}, 'What fills the peak'), ...categories(summary, verdict, chosen));
  }
  host.replaceChildren(el('h2', { id: 'verdict-title' }, 'Verdict'), ...parts);
}

// One bar of the shares, and the same as a list: colour is never the only sign.
function categories(summary: Summary, verdict: Verdict,
                    chosen: (category: number) => void): HTMLElement[] {
  const all = Math.max(1, summary.live_peak_bytes);
  const colour = (category: number) => `--swatch: var(--class-${categoryClass(verdict, category)})`;
  const bar = el('div', { class: 'shares', 'aria-hidden': 'true' }, ...verdict.categories.map((one) =>
    el('span', { style: `${colour(one.category)}; flex-grow: ${one.bytes / all}`, title: one.name })));
  const list = el('ul', { class: 'categories' }, ...verdict.categories.map((one) => el('li', {},
    el('button', { type: 'button', class: 'link', title: 'Show it in the plot',
                   onclick: () => chosen(one.category) },
       el('span', { class: 'swatch', style: colour(one.category) }), one.name),
    el('span', { class: 'amount', 'data-category-bytes': String(one.bytes) }, format.bytes(one.bytes)),
    el('span', { class: 'share' }, format.percent(one.bytes / all)),
    el('span', { class: 'sure' }, one.confidence))));
  return [bar, list];
}
