// Light and dark: the system's choice, or the reader's.
import type { Palette } from '../worker/colours';
import { byId } from './dom';

export type Theme = 'light' | 'dark';

// Hues that people with any of the common colour deficiencies tell apart (Okabe and Ito, "Color
// Universal Design", 2008), in an order that keeps neighbours of the stack far apart. The last one
// is for everything else.
const kHues = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#f0e442'];
const kRest: Record<Theme, string> = { light: '#8c959f', dark: '#6e7781' };
export const kClasses = kHues.length + 1;

export function hues(theme: Theme): string[] {
  return [...kHues, kRest[theme]];
}

function asPixel(css: string): number {
  const value = parseInt(css.slice(1), 16);
  return ((0xff << 24) | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}

// The colours of a canvas, as the style sheet has them now.
export interface Ink {
  paper: string; panel: string; ink: string; soft: string; line: string; accent: string;
  alarm: string; freeA: string; freeB: string;
}

export class ThemeSwitch {
  theme: Theme = 'light';
  private readonly select = byId<HTMLSelectElement>('theme');
  private readonly system = matchMedia('(prefers-color-scheme: dark)');

  constructor(private readonly changed: () => void) {
    // Pages opened from a file may have no storage.
    try { this.select.value = localStorage.getItem('tenon-theme') ?? 'auto'; } catch { /* none */ }
    if (this.select.value === '') this.select.value = 'auto';
    this.apply();
    this.select.addEventListener('change', () => {
      try { localStorage.setItem('tenon-theme', this.select.value); } catch { /* none */ }
      this.apply();
      this.changed();
    });
    this.system.addEventListener('change', () => {
      this.apply();
      this.changed();
    });
  }

  private apply(): void {
    const wish = this.select.value;
    this.theme = wish === 'light' || wish === 'dark' ? wish : this.system.matches ? 'dark' : 'light';
    document.documentElement.dataset.theme = this.theme;
  }

  ink(): Ink {
    const style = getComputedStyle(document.documentElement);
    const of = (name: string) => style.getPropertyValue(name).trim();
    return { paper: of('--paper'), panel: of('--panel'), ink: of('--ink'), soft: of('--soft'),
             line: of('--line'), accent: of('--accent'), alarm: of('--alarm'),
             freeA: of('--free-a'), freeB: of('--free-b') };
  }

  palette(): Palette {
    const ink = this.ink();
    return { groups: hues(this.theme).map(asPixel), background: asPixel(ink.paper),
             free: asPixel(ink.freeB), freeLine: asPixel(ink.freeA), dark: this.theme === 'dark' };
  }
}
