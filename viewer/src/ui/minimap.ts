// The whole recording in small, and which part of it the plot shows. Drag to move the part.
import type { Summary } from '../data/summary';
import { byId } from './dom';
import { plotSpan } from './plot_paint';
import type { State } from './state';
import type { ThemeSwitch } from './theme';
import type { Viewport } from './viewport';

export class Minimap {
  private readonly canvas = byId<HTMLCanvasElement>('minimap');
  private readonly context = this.canvas.getContext('2d', { alpha: false })!;
  private framed = false;
  outlineByOps: number[] = [];
  private grip: number | null = null;  // where in the part the pointer holds it

  constructor(
    private readonly summary: Summary,
    private readonly viewport: Viewport,
    private readonly state: State,
    private readonly theme: ThemeSwitch,
    private readonly moved: () => void,
  ) {
    new ResizeObserver(() => this.invalidate()).observe(this.canvas);
    state.on(['theme', 'axis'], () => this.invalidate());
    this.canvas.addEventListener('pointerdown', (event) => this.press(event));
    this.canvas.addEventListener('pointermove', (event) => this.drag(event));
    this.canvas.addEventListener('pointerup', () => (this.grip = null));
  }

  invalidate(): void {
    if (this.framed) return;
    this.framed = true;
    requestAnimationFrame(() => {
      this.framed = false;
      this.paint();
    });
  }

  private toX(event: PointerEvent): number {
    const rect = this.canvas.getBoundingClientRect();
    const { left, width } = plotSpan(rect.width);
    return (event.clientX - rect.left - left) / width * this.viewport.end;
  }

  private press(event: PointerEvent): void {
    const x = this.toX(event);
    const { x0, x1, width } = this.viewport;
    this.canvas.setPointerCapture(event.pointerId);
    this.grip = x >= x0 && x <= x1 ? x - x0 : width / 2;
    this.drag(event);
  }

  private drag(event: PointerEvent): void {
    if (this.grip === null) return;
    const from = this.toX(event) - this.grip;
    this.viewport.setX(from, from + this.viewport.width);
    this.moved();
  }

  private paint(): void {
    const ratio = window.devicePixelRatio || 1;
    const width = this.canvas.clientWidth;
    const height = this.canvas.clientHeight;
    if (this.canvas.width !== Math.round(width * ratio)) this.canvas.width = Math.round(width * ratio);
    if (this.canvas.height !== Math.round(height * ratio)) this.canvas.height = Math.round(height * ratio);
    const c = this.context;
    const ink = this.theme.ink();
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.fillStyle = ink.paper;
    c.fillRect(0, 0, width, height);
    const { left, width: inner } = plotSpan(width);
    c.fillStyle = ink.panel;
    c.fillRect(left, 0, inner, height);
    const { live_peak_bytes: peak } = this.summary;
    const byTime = this.state.now.axis === 'time';
    const outline = byTime || !this.summary.timed ? this.summary.outline : this.outlineByOps;
    if (peak > 0) {
      c.fillStyle = ink.soft;
      c.globalAlpha = 0.55;
      const step = inner / outline.length;
      outline.forEach((value, i) => {
        const tall = value / peak * (height - 4);
        c.fillRect(left + i * step, height - tall, Math.max(step, 0.8), tall);
      });
      c.globalAlpha = 1;
    }
    c.fillStyle = ink.alarm;
    for (const oom of this.summary.out_of_memory) {
      const at = byTime ? oom.time_us / Math.max(1, this.summary.trace_duration_us)
        : oom.operation / Math.max(1, this.summary.events);
      c.fillRect(left + at * inner - 1, 0, 2, height);
    }
    const { x0, x1, end } = this.viewport;
    const from = left + x0 / end * inner;
    const to = Math.max(from + 3, left + x1 / end * inner);
    c.fillStyle = ink.accent;
    c.globalAlpha = 0.16;
    c.fillRect(from, 0, to - from, height);
    c.globalAlpha = 1;
    c.strokeStyle = ink.accent;
    c.lineWidth = 1.5;
    c.strokeRect(from + 0.75, 0.75, Math.max(1, to - from - 1.5), height - 1.5);
  }
}
