// Numbers as people read them.

const kUnits = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

// 3000000 -> "2.86 MiB", as the command writes it.
export function bytes(value: number): string {
  let unit = 0;
  let amount = value;
  while (Math.abs(amount) >= 1024 && unit + 1 < kUnits.length) {
    amount /= 1024;
    ++unit;
  }
  if (unit === 0 || Number.isInteger(amount)) return `${amount} ${kUnits[unit]}`;
  const digits = Math.abs(amount) >= 1000 ? 0 : Math.abs(amount) >= 100 ? 1 : 2;
  return `${amount.toFixed(digits)} ${kUnits[unit]}`;
}

export function count(value: number): string {
  return value.toLocaleString('en-US', { maximumFractionDigits: 0 });
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

// A point in time or a length of it, from microseconds. `about`: how fine it must be told, as when
// neighbouring labels of an axis are so far apart.
export function time(us: number, about = us): string {
  const fine = Math.max(1, Math.abs(about));
  if (Math.abs(us) < 1000 && fine < 1000) return `${Math.round(us)} µs`;
  if (Math.abs(us) < 1e6) {
    return `${(us / 1e3).toFixed(fine >= 1e5 ? 0 : fine >= 1e4 ? 1 : fine >= 100 ? 2 : 3)} ms`;
  }
  const seconds = us / 1e6;
  const digits = fine >= 1e7 ? 1 : fine >= 1e6 ? 2 : fine >= 1e4 ? 3 : fine >= 1e2 ? 5 : 6;
  return `${seconds.toFixed(digits)} s`;
}

// A moment of a recording: its time, or its event where the recording has no times.
export function moment(timed: boolean, us: number, event: number, about = us): string {
  return timed ? time(us, about) : `event ${count(event)}`;
}

export function percent(share: number): string {
  if (!Number.isFinite(share)) return '–';
  const value = 100 * share;
  return `${value.toFixed(value >= 99.95 || value === 0 ? 0 : 1)} %`;
}

// "forward site-packages/torch/nn/linear.py:125" -> "forward linear.py:125", where room is short.
export function shortSite(name: string): string {
  return name.replace(/\S*\/(?=\S+$)/, '');
}

// 1, 2 or 5 times a power of ten (or of two, times a binary unit), so that about `steps` fit.
export function niceStep(range: number, steps: number, binary: boolean): number {
  const raw = range / Math.max(1, steps);
  const base = binary ? 1024 ** Math.max(0, Math.floor(Math.log(Math.max(1, raw)) / Math.log(1024))) : 1;
  const part = raw / base;
  if (binary) return base * Math.max(1, 2 ** Math.ceil(Math.log2(part)));
  const power = 10 ** Math.floor(Math.log10(part));
  for (const factor of [1, 2, 5, 10]) if (factor * power >= part) return factor * power;
  return 10 * power;
}
