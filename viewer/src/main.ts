// The page begins here: what the summary says at once, the rest when the data are unpacked.
import './style.css';
import type { Names, Summary } from './data/summary';
import { AddressMap } from './ui/address_map';
import { Client } from './ui/client';
import { Details } from './ui/details';
import { byId, el } from './ui/dom';
import { Failures } from './ui/failures';
import * as format from './ui/format';
import { showFacts } from './ui/facts';
import { Minimap } from './ui/minimap';
import { Plot } from './ui/plot';
import { showLines, showPolicies } from './ui/policies';
import { Search } from './ui/search';
import { State } from './ui/state';
import { Tables } from './ui/tables';
import { hues, kClasses, ThemeSwitch } from './ui/theme';
import { categoryClass, showVerdict } from './ui/verdict';
import type { Grouping } from './worker/protocol';

function fail(message: string): void {
  const box = el('p', { class: 'failure', role: 'alert' }, `This cannot be shown: ${message}`);
  byId('facts').prepend(box);
  byId('loading').textContent = '';
}

// The largest groups at the peak have colours of their own, the rest share one.
function classesOf(summary: Summary, names: Names, grouping: Grouping): number[] {
  if (grouping === 'category') {
    return names.categories.map((_, category) => categoryClass(summary.verdict, category));
  }
  const classes = new Array<number>(names.groups.length).fill(kClasses - 1);
  summary.largest_at_peak.slice(0, kClasses - 1).forEach(({ group }, i) => (classes[group] = i));
  return classes;
}

function showLegend(summary: Summary, theme: ThemeSwitch, grouping: Grouping): void {
  // For the style sheet: the cards are of call sites, whose colours stand for something else then.
  document.documentElement.dataset.grouping = grouping;
  const colours = hues(theme.theme);
  colours.forEach((colour, i) =>
    document.documentElement.style.setProperty(`--class-${i}`, colour));
  const groups = grouping === 'category' ? summary.verdict?.categories ?? []
    : summary.largest_at_peak;
  const named = groups.slice(0, groups.length <= kClasses ? kClasses : kClasses - 1);
  const item = (name: string, i: number) => el('li', { title: name },
    el('span', { class: 'swatch', style: `--swatch: var(--class-${i})` }),
    grouping === 'category' ? name : format.shortSite(name));
  byId('legend').replaceChildren(
    ...named.map(({ name }, i) => item(name, i)),
    ...(named.length < kClasses ? [item('all others', kClasses - 1)] : []));
}

function start(summary: Summary): void {
  const state = new State({
    cursorOp: 0, block: null, axis: summary.timed ? 'time' : 'event', order: 'allocation',
    grouping: (summary.verdict?.categories.length ?? 0) > 0 ? 'category' : 'site', mapPolicy: 0,
    policies: new Set(summary.policies.keys()), theme: 0, matches: 0,
  });
  const theme = new ThemeSwitch(() => {
    showLegend(summary, theme, state.now.grouping);
    restyle();
    state.set({ theme: state.now.theme + 1 });
  });
  let names: Names | null = null;
  const client = new Client({
    error: fail,
    progress: (share) => {
      byId('loading').textContent = share < 1 ? `Unpacking, ${Math.round(100 * share)} %` : '';
    },
    ready: (answer) => {
      names = answer.names;
      byId('loading').textContent = '';
      restyle();
      for (const part of [search, map, details, failures]) part.start(answer.names);
      tables.start(answer.names, answer.marks);
      minimap.outlineByOps = answer.outline;
      state.set({ cursorOp: answer.peakOp });
      plot.start(answer.names, answer.marks, answer.ops, answer.endUs);
      if (answer.ops === 0) return done();
      plot.onFirstDraw = done;
    },
  });
  // For measurements: when the plot first showed every block.
  const done = () => requestAnimationFrame(() => {
    performance.mark('tenon-ready');
    document.documentElement.dataset.ready = 'yes';
  });
  const restyle = () => {
    if (!names) return;
    const { grouping } = state.now;
    client.tell({ kind: 'style', palette: theme.palette(), grouping,
                  classes: classesOf(summary, names, grouping) });
  };
  const regroup = (grouping: Grouping) => {
    if (grouping === state.now.grouping) return;
    byId<HTMLSelectElement>('grouping').value = grouping;
    state.set({ grouping });
  };
  // Before the plot listens, so that it is drawn anew in the new colours.
  state.on(['grouping'], () => {
    showLegend(summary, theme, state.now.grouping);
    restyle();
  });

  showLegend(summary, theme, state.now.grouping);
  const plot = new Plot(summary, client, state, theme);
  const minimap = new Minimap(summary, plot.viewport, state, theme, () => plot.invalidate());
  plot.onView = () => minimap.invalidate();
  const search = new Search(summary, client, state, (op) => plot.goTo(op));
  const map = new AddressMap(summary, client, state);
  const details = new Details(summary, client, state, (block) => void plot.zoomToBlock(block));
  const tables = new Tables(summary, client, (block) => state.set({ block }),
                            (op) => plot.goTo(op));
  plot.onMoment = (moment) => {
    details.setMoment(moment);
    tables.setMoment(moment);
  };
  const toPlot = (op: number) => {
    plot.goTo(op);
    byId('plot-title').scrollIntoView({ block: 'start' });
  };
  const failures = new Failures(summary, client, toPlot);
  const goToPeak = () => void plot.zoomToPeak();
  showVerdict(summary, () => {
    regroup('category');
    const order = byId<HTMLSelectElement>('order');
    order.value = 'group';
    order.dispatchEvent(new Event('change'));
    byId('plot-title').scrollIntoView({ block: 'start' });
  });
  showFacts(summary, toPlot, goToPeak, (text) => search.set(text));
  showPolicies(summary, state);
  showLines(summary, state);
  state.on(['policies'], () => showLines(summary, state));
  listen(summary, client, state, plot, search, goToPeak, regroup);
  performance.mark('tenon-summary');

  client.open(summary);
  (window as unknown as { tenon: object }).tenon = { state, plot, map };  // for the tests
}

function listen(summary: Summary, client: Client, state: State, plot: Plot, search: Search,
                goToPeak: () => void, regroup: (grouping: Grouping) => void): void {
  const grouping = byId<HTMLSelectElement>('grouping');
  if (summary.grouped_by === 'size') byId('grouping-site').textContent = 'size';
  if ((summary.verdict?.categories.length ?? 0) === 0) byId('grouping-category').remove();
  grouping.value = state.now.grouping;
  grouping.addEventListener('change', () =>
    regroup(grouping.value === 'category' ? 'category' : 'site'));
  if (!summary.timed) byId('axis-time').remove();
  const axis = byId<HTMLSelectElement>('axis');
  const order = byId<HTMLSelectElement>('order');
  // A reload may bring back what was chosen before.
  axis.value = state.now.axis;
  order.value = state.now.order;
  axis.addEventListener('change', () => state.set({ axis: axis.value === 'event' ? 'event' : 'time' }));
  order.addEventListener('change', () => {
    const wish = order.value === 'group' ? 'group' : 'allocation';
    client.tell({ kind: 'order', order: wish });
    state.set({ order: wish });
  });
  byId('zoom-in').addEventListener('click', () => plot.zoom(0.6));
  byId('zoom-out').addEventListener('click', () => plot.zoom(1 / 0.6));
  byId('zoom-reset').addEventListener('click', () => plot.showAll());
  byId('to-peak').addEventListener('click', goToPeak);
  byId('help').addEventListener('click', () => byId<HTMLDialogElement>('keys').showModal());
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(input|select|textarea)$/i.test((event.target as HTMLElement).tagName ?? '')) return;
    if (event.key === '/') search.focus();
    else if (event.key === 'p' || event.key === 'P') goToPeak();
    else if (event.key === '?') byId<HTMLDialogElement>('keys').showModal();
    else return;
    event.preventDefault();
  });
}

try {
  const summary = JSON.parse(byId('tenon-summary').textContent ?? '') as Summary;
  if (summary.format !== 1) throw new Error(`its format is ${summary.format}, this page reads 1`);
  start(summary);
} catch (error) {
  fail(error instanceof Error ? error.message : String(error));
}
