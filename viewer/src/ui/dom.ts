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

// A table for everybody: caption, scopes, and the first column names its row.
export function table<Row>(caption: string, columns: TableColumn<Row>[], rows: Row[],
                           rowClass?: (row: Row) => string): HTMLTableElement {
  const head = el('tr', {}, ...columns.map((column) =>
    el('th', { scope: 'col', class: column.text ? 'text' : '' }, column.title)));
  const body = rows.map((row) => el('tr', { class: rowClass?.(row) ?? '' },
    ...columns.map((column, i) => i === 0
      ? el('th', { scope: 'row', class: column.text ? 'text' : '' }, column.cell(row))
      : el('td', { class: column.text ? 'text' : '' }, column.cell(row)))));
  return el('table', {}, el('caption', {}, caption), el('thead', {}, head), el('tbody', {}, ...body));
}
