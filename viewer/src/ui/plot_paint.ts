// Paints the plot from what the worker drew last: cheap enough for every frame, however many
// blocks there are.
import type { View } from '../worker/axis';
import { MarkBit, type DrawAnswer } from '../worker/protocol';
import * as format from './format';
import type { Ink } from './theme';
import type { Viewport } from './viewport';

export interface Box { left: number; top: number; width: number; height: number }

// Where the plot and the overview below it begin and end in a canvas of this width.
export function plotSpan(canvasWidth: number): { left: number; width: number } {
  return canvasWidth < 560 ? { left: 60, width: canvasWidth - 64 }
    : { left: 76, width: canvasWidth - 84 };
}

// What the worker drew, as an image.
export class Drawn {
  readonly canvas = document.createElement('canvas');
  constructor(readonly answer: DrawAnswer) {
    const { width, height } = answer.view;
    this.canvas.width = width;
    this.canvas.height = height;
    this.canvas.getContext('2d')!.putImageData(new ImageData(answer.pixels, width, height), 0, 0);
  }

  get view(): View { return this.answer.view; }

  // The pixel that a point in the plot's own units falls on; -1 outside.
  indexAt(x: number, y: number): number {
    const view = this.view;
    const column = Math.floor((x - view.x0) / (view.x1 - view.x0) * view.width);
    const row = Math.floor((view.y1 - y) / (view.y1 - view.y0) * view.height);
    if (column < 0 || row < 0 || column >= view.width || row >= view.height) return -1;
    return row * view.width + column;
  }
}

export interface Scene {
  box: Box;           // CSS pixels
  ratio: number;      // device pixels to one of those
  viewport: Viewport;
  ink: Ink;
  whole: Drawn | null;
  detail: Drawn | null;
  axisIsTime: boolean;
  cursorX: number | null;
  capacity: number | null;
  highlight: { canvas: HTMLCanvasElement; view: View; from: number } | null;
  outline: { values: number[]; end: number } | null;  // until the worker has drawn
}

// Patterns rather than colours tell policies apart: colours are the call sites'.
export const kDashes: number[][] = [[], [7, 4], [2, 3], [10, 3, 2, 3], [14, 5], [4, 2], [1, 4],
                                    [8, 2, 2, 2, 2, 2], [3, 6], [12, 2], [6, 6]];

export class PlotPainter {
  constructor(private readonly context: CanvasRenderingContext2D) {}

  paint(scene: Scene): void {
    const { context: c } = this;
    const { box, ratio, ink } = scene;
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.fillStyle = ink.paper;
    c.fillRect(0, 0, c.canvas.width / ratio, c.canvas.height / ratio);
    this.grid(scene);
    c.save();
    c.beginPath();
    c.rect(box.left, box.top, box.width, box.height);
    c.clip();
    if (scene.outline) this.outline(scene, scene.outline);
    if (scene.whole) this.image(scene, scene.whole.canvas, scene.whole.view, false);
    if (scene.detail && scene.detail !== scene.whole) {
      this.image(scene, scene.detail.canvas, scene.detail.view, true);
    }
    if (scene.highlight) {
      this.image(scene, scene.highlight.canvas, scene.highlight.view, false);
    }
    this.gridLines(scene);
    this.policyLines(scene);
    this.capacityLine(scene);
    c.restore();
    this.marks(scene);
    this.cursor(scene);
  }

  private toX(scene: Scene, x: number): number {
    return scene.box.left + (x - scene.viewport.x0) / scene.viewport.width * scene.box.width;
  }
  private toY(scene: Scene, y: number): number {
    return scene.box.top + (scene.viewport.y1 - y) / scene.viewport.height * scene.box.height;
  }

  // The part of an image that is in view, stretched to where it belongs.
  private image(scene: Scene, canvas: HTMLCanvasElement, view: View, opaque: boolean): void {
    const { viewport, ink } = scene;
    const x0 = Math.max(view.x0, viewport.x0);
    const x1 = Math.min(view.x1, viewport.x1);
    const y0 = Math.max(view.y0, viewport.y0);
    const y1 = Math.min(view.y1, viewport.y1);
    if (x1 <= x0 || y1 <= y0) return;
    const sx = canvas.width / (view.x1 - view.x0);
    const sy = canvas.height / (view.y1 - view.y0);
    const left = this.toX(scene, x0);
    const top = this.toY(scene, y1);
    const width = this.toX(scene, x1) - left;
    const height = this.toY(scene, y0) - top;
    const c = this.context;
    if (opaque) {
      c.fillStyle = ink.paper;
      c.fillRect(left, top, width, height);
    }
    c.imageSmoothingEnabled = false;
    c.drawImage(canvas, (x0 - view.x0) * sx, (view.y1 - y1) * sy, Math.max((x1 - x0) * sx, 1e-6),
                Math.max((y1 - y0) * sy, 1e-6), left, top, width, height);
  }

  private outline(scene: Scene, outline: { values: number[]; end: number }): void {
    const c = this.context;
    const { values, end } = outline;
    c.fillStyle = scene.ink.line;
    c.beginPath();
    c.moveTo(this.toX(scene, 0), this.toY(scene, 0));
    values.forEach((value, i) => {
      c.lineTo(this.toX(scene, end * i / values.length), this.toY(scene, value));
      c.lineTo(this.toX(scene, end * (i + 1) / values.length), this.toY(scene, value));
    });
    c.lineTo(this.toX(scene, end), this.toY(scene, 0));
    c.fill();
  }

  private ticks(from: number, to: number, step: number): number[] {
    const out: number[] = [];
    for (let i = Math.ceil(from / step); i * step <= to; ++i) out.push(i * step);
    return out;
  }

  private grid(scene: Scene): void {
    const c = this.context;
    const { box, viewport, ink } = scene;
    c.font = '12px system-ui, sans-serif';
    c.fillStyle = ink.soft;
    c.textBaseline = 'middle';
    c.textAlign = 'right';
    for (const y of this.ySteps(scene)) c.fillText(format.bytes(y), box.left - 8, this.toY(scene, y));
    c.textBaseline = 'top';
    c.textAlign = 'center';
    const step = format.niceStep(viewport.width, box.width / 110, false);
    let free = 0;  // where the next label may begin
    for (const x of this.ticks(viewport.x0, viewport.x1, Math.max(step, 1))) {
      c.fillRect(Math.round(this.toX(scene, x)), box.top + box.height + 11, 1, 4);
      const label = scene.axisIsTime ? format.time(x, step) : format.count(x);
      const half = c.measureText(label).width / 2;
      const most = c.canvas.width / scene.ratio - half - 2;
      const at = Math.max(half, Math.min(this.toX(scene, x), most));
      if (at - half < free) continue;
      c.fillText(label, at, box.top + box.height + 16);
      free = at + half + 8;
    }
  }

  private ySteps(scene: Scene): number[] {
    const { viewport, box } = scene;
    return this.ticks(viewport.y0, viewport.y1,
                      format.niceStep(viewport.height, box.height / 55, true));
  }

  private gridLines(scene: Scene): void {
    const c = this.context;
    c.fillStyle = scene.ink.soft;
    c.globalAlpha = 0.22;
    for (const y of this.ySteps(scene)) {
      c.fillRect(scene.box.left, Math.round(this.toY(scene, y)), scene.box.width, 1);
    }
    c.globalAlpha = 1;
  }

  private policyLines(scene: Scene): void {
    const drawn = scene.detail ?? scene.whole;
    if (!drawn) return;
    const { view, held } = drawn.answer;
    const lines = held.map(({ policy, most }) =>
      ({ dash: kDashes[policy % kDashes.length], path: this.line(scene, view, most) }));
    const c = this.context;
    c.lineJoin = 'round';
    // All on paper colour first, so that lines stand out over any block and none cuts another.
    c.strokeStyle = scene.ink.paper;
    c.globalAlpha = 0.75;
    c.lineWidth = 4;
    for (const { path } of lines) c.stroke(path);
    c.globalAlpha = 1;
    c.strokeStyle = scene.ink.ink;
    c.lineWidth = 1.8;
    for (const { dash, path } of lines) {
      c.setLineDash(dash);
      c.stroke(path);
    }
    c.setLineDash([]);
  }

  // A stepped line through one value for each column; a gap where there is none.
  private line(scene: Scene, view: View, most: Float64Array): Path2D {
    const path = new Path2D();
    // Nothing far outside: dashes along a line of millions of pixels take seconds.
    const { box } = scene;
    const clampX = (x: number) => Math.max(box.left - 20, Math.min(x, box.left + box.width + 20));
    const clampY = (y: number) => Math.max(box.top - 20, Math.min(y, box.top + box.height + 20));
    let last = NaN;
    for (let column = 0; column < most.length; ++column) {
      const value = most[column];
      if (Number.isNaN(value)) {
        last = NaN;
        continue;
      }
      if (value === last && column + 1 < most.length && most[column + 1] === value) continue;
      const x = clampX(this.toX(scene, view.x0 + (view.x1 - view.x0) * column / most.length));
      const y = clampY(this.toY(scene, value));
      if (Number.isNaN(last)) path.moveTo(x, y);
      else {
        path.lineTo(x, clampY(this.toY(scene, last)));
        path.lineTo(x, y);
      }
      last = value;
    }
    if (!Number.isNaN(last)) {
      path.lineTo(clampX(this.toX(scene, view.x1)), clampY(this.toY(scene, last)));
    }
    return path;
  }

  private capacityLine(scene: Scene): void {
    if (scene.capacity === null) return;
    const c = this.context;
    const y = Math.round(this.toY(scene, scene.capacity));
    c.fillStyle = scene.ink.alarm;
    c.fillRect(scene.box.left, y, scene.box.width, 2);
    c.font = '600 12px system-ui, sans-serif';
    c.textAlign = 'left';
    c.textBaseline = 'bottom';
    c.fillText(`capacity ${format.bytes(scene.capacity)}`, scene.box.left + 6, y - 2);
  }

  // Below the plot: growth up, shrinking down, out of memory in red over the whole height.
  private marks(scene: Scene): void {
    const drawn = scene.detail ?? scene.whole;
    if (!drawn) return;
    const c = this.context;
    const { box, ink } = scene;
    const { view, marks } = drawn.answer;
    const base = box.top + box.height;
    for (let column = 0; column < marks.length; ++column) {
      const bits = marks[column];
      if (bits === 0) continue;
      const x = this.toX(scene, view.x0 + (view.x1 - view.x0) * (column + 0.5) / marks.length);
      if (x < box.left || x > box.left + box.width) continue;
      c.fillStyle = ink.ink;
      if (bits & MarkBit.grew) c.fillRect(x - 0.5, base + 1, 1, 4);
      if (bits & MarkBit.shrank) c.fillRect(x - 0.5, base + 6, 1, 4);
      if (bits & MarkBit.phase) {
        c.fillStyle = ink.accent;
        c.fillRect(x - 0.5, box.top, 1, 7);
      }
      if (bits & MarkBit.outOfMemory) this.outOfMemory(x, box, ink);
    }
  }

  private outOfMemory(x: number, box: Box, ink: Ink): void {
    const c = this.context;
    c.fillStyle = ink.alarm;
    c.fillRect(x - 1, box.top, 2, box.height + 10);
    c.beginPath();
    c.moveTo(x - 7, box.top);
    c.lineTo(x + 7, box.top);
    c.lineTo(x, box.top + 11);
    c.fill();
  }

  private cursor(scene: Scene): void {
    if (scene.cursorX === null) return;
    const c = this.context;
    const x = this.toX(scene, scene.cursorX);
    const { box, ink } = scene;
    if (x < box.left - 1 || x > box.left + box.width + 1) return;
    c.fillStyle = ink.paper;
    c.fillRect(x - 1.5, box.top, 3, box.height);
    c.fillStyle = ink.accent;
    c.fillRect(x - 0.75, box.top, 1.5, box.height + 10);
    c.beginPath();
    c.arc(x, box.top + box.height + 8, 4, 0, 7);
    c.fill();
  }
}
