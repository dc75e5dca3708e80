// The page begins here: what the summary says at once, the rest when the data are unpacked.
import './style.css';
import type { Names, Summary } from './data/summary';
import { AddressMap } from './ui/address_map';
import { Client } from './ui/client';
import { Details } from './ui/details';
import { byId, el } from './ui/dom';
import * as format from './ui/format';
import { showFacts } from './ui/facts';
import { Minimap } from './ui/minimap';
import { Plot } from './ui/plot';
import { showPolicies } from './ui/policies';
import { Search } from './ui/search';
import { State } from './ui/state';
import { Tables } from './ui/tables';
import { hues, kClasses, ThemeSwitch } from './ui/theme';

function fail(message: string): void {
  const box = el('p', { class: 'failure', role: 'alert' }, `This cannot be shown: ${message}`);
  byId('facts').prepend(box);
  byId('loading').textContent = '';
}

// The largest groups at the peak have colours of their own, the rest share one.
function groupClasses(summary: Summary, groups: number): number[] {
  const classes = new Array<number>(groups).fill(kClasses - 1);
  summary.largest_at_peak.slice(0, kClasses - 1).forEach(({ group }, i) => (classes[group] = i));
  return classes;
}

function showLegend(summary: Summary, theme: ThemeSwitch): void {
  const colours = hues(theme.theme);
  colours.forEach((colour, i) =>
    document.documentElement.style.setProperty(`--class-${i}`, colour));
  const named = summary.largest_at_peak.slice(0, kClasses - 1);
  const item = (name: string, i: number) => el('li', { title: name },
    el('span', { class: 'swatch', style: `--swatch: var(--class-${i})` }), format.shortSite(name));
  byId('legend').replaceChildren(...named.map(({ name }, i) => item(name, i)),
                                 item('all others', kClasses - 1));
}

function start(summary: Summary): void {
  const state = new State({
    cursorOp: 0, block: null, axis: 'time', order: 'allocation', mapPolicy: 0,
    policies: new Set(summary.policies.keys()), theme: 0, matches: 0,
  });
  const theme = new ThemeSwitch(() => {
    showLegend(summary, theme);
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
      for (const part of [search, map, details]) part.start(answer.names);
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
    client.tell({ kind: 'style', palette: theme.palette(),
                  groupClass: groupClasses(summary, names.groups.length) });
  };

  showLegend(summary, theme);
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
  const goToTime = (us: number) => void client.ask({ kind: 'at', axis: 'time', x: us })
    .then(({ op }) => plot.goTo(op));
  const goToPeak = () => {
    if (!names) return;
    void client.ask({ kind: 'peak' }).then(({ op }) => plot.goTo(op));
  };
  showFacts(summary, (us) => (us === summary.live_peak_time_us ? goToPeak() : goToTime(us)),
            (text) => search.set(text));
  showPolicies(summary, state);
  listen(summary, client, state, plot, search, goToPeak);
  performance.mark('tenon-summary');

  client.open(summary);
  (window as unknown as { tenon: object }).tenon = { state, plot, map };  // for the tests
}

function listen(summary: Summary, client: Client, state: State, plot: Plot, search: Search,
                goToPeak: () => void): void {
  if (summary.grouped_by === 'size') byId('order-group').textContent = 'by size';
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
