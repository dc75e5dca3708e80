// Elements without markup: text from files is only ever set as text.

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found as T;
}

type Child = Node | string | null;

// An element with attributes (on... : a listener) and children; strings become text.
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K, attributes: Record<string, string | ((event: Event) => void)> = {}, ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === 'function') made.addEventListener(name.slice(2), value);
    else if (name.startsWith('--')) made.style.setProperty(name, value);
    else made.setAttribute(name, value);
  }
  for (const child of children) if (child !== null) made.append(child);
  return made;
}

export interface TableColumn<Row> {
  title: string;
  text?: boolean;  // left-aligned
  cell: (row: Row) => Child;
}

// Rows that a table shows before it is unfolded: on a narrow screen names take several lines.
const kShownRows = innerWidth < 640 ? 4 : 10;

let tables = 0;

// A table with caption and scopes; the first column names its row. Rows beyond the first few are
// folded behind a button. It scrolls sideways by itself where it is wider than the page.
export function table<Row>(caption: string, columns: TableColumn<Row>[], rows: Row[]): HTMLElement {
  const head = el('tr', {}, ...columns.map((column) =>
    el('th', { scope: 'col', class: column.text ? 'text' : '' }, column.title)));
  const line = (row: Row) => el('tr', {},
    ...columns.map((column, i) => i === 0
      ? el('th', { scope: 'row', class: column.text ? 'text' : '' }, column.cell(row))
      : el('td', { class: column.text ? 'text' : '' }, column.cell(row))));
  const made = el('table', {}, el('caption', {}, caption), el('thead', {}, head),
                  el('tbody', {}, ...rows.slice(0, kShownRows).map(line)));
  const box = el('div', { class: 'scroll', tabindex: '0', role: 'group', 'aria-label': caption }, made);
  if (rows.length <= kShownRows) return box;
  // Built when first asked for: a page of long tables opens as fast as one of short tables.
  const id = `rows-${++tables}`;
  const rest = el('tbody', { id, hidden: '' });
  made.append(rest);
  const button = el('button', { type: 'button', class: 'more', 'aria-expanded': 'false',
                                'aria-controls': id, onclick: () => {
    if (rest.childElementCount === 0) rest.append(...rows.slice(kShownRows).map(line));
    rest.hidden = !rest.hidden;
    button.setAttribute('aria-expanded', String(!rest.hidden));
    button.textContent = rest.hidden ? all : `Show the first ${kShownRows}`;
  } });
  const all = `Show all ${rows.length} rows`;
  button.textContent = all;
  return el('div', {}, box, button);
}
