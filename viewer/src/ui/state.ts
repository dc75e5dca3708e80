// What the reader has chosen; parts of the page listen for what concerns them.
import type { AxisKind } from '../worker/axis';
import type { Grouping, StackOrder } from '../worker/protocol';

export interface Choices {
  cursorOp: number;          // the moment that map, tables and details are about
  block: number | null;      // the block chosen
  axis: AxisKind;
  order: StackOrder;
  grouping: Grouping;        // what colours stand for
  policies: ReadonlySet<number>;  // whose lines are drawn
  mapPolicy: number;
  theme: number;             // counts changes
  matches: number;           // counts changes of the search
}

export class State {
  private readonly listeners: { keys: (keyof Choices)[]; call: () => void }[] = [];

  constructor(readonly now: Readonly<Choices>) {}

  on(keys: (keyof Choices)[], call: () => void): void {
    this.listeners.push({ keys, call });
  }

  set(changes: Partial<Choices>): void {
    const changed = (Object.keys(changes) as (keyof Choices)[])
      .filter((key) => this.now[key] !== changes[key]);
    Object.assign(this.now, changes);
    for (const { keys, call } of this.listeners) {
      if (keys.some((key) => changed.includes(key))) call();
    }
  }
}
