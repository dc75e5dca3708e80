// The part of the plot that is seen, and how it moves.

export class Viewport {
  x0 = 0;
  x1 = 1;
  y0 = 0;
  y1 = 1;
  private endX = 1;
  private topY = 1;
  private leastX = 1;

  // The whole plot: 0 to `end` along, 0 to `top` bytes up; `least`: the narrowest view.
  // keep: what is seen along the axis stays, and the height too unless all of it was seen.
  reset(end: number, top: number, least: number, keep = false): void {
    const tall = this.y0 <= 0 && this.y1 >= this.topY;
    this.endX = Math.max(end, least);
    this.topY = top;
    this.leastX = least;
    if (!keep) this.showAll();
    else if (tall || this.y1 > top) [this.y0, this.y1] = [0, top];
  }

  showAll(): void {
    this.x0 = 0;
    this.x1 = this.endX;
    this.y0 = 0;
    this.y1 = this.topY;
  }

  get width(): number { return this.x1 - this.x0; }
  get height(): number { return this.y1 - this.y0; }
  get end(): number { return this.endX; }
  get top(): number { return this.topY; }
  get isWhole(): boolean {
    return this.x0 <= 0 && this.x1 >= this.endX && this.y0 <= 0 && this.y1 >= this.topY;
  }

  // By a factor below 1 closer, around a point that stays where it is.
  zoomX(factor: number, around: number): void {
    const width = Math.min(this.endX, Math.max(this.leastX, this.width * factor));
    const share = (around - this.x0) / this.width;
    this.setX(around - share * width, around - share * width + width);
  }

  zoomY(factor: number, around: number): void {
    const height = Math.min(this.topY, Math.max(64, this.height * factor));
    const share = (around - this.y0) / this.height;
    this.y0 = Math.max(0, Math.min(around - share * height, this.topY - height));
    this.y1 = this.y0 + height;
  }

  pan(dx: number, dy: number): void {
    this.setX(this.x0 + dx, this.x1 + dx);
    const y0 = Math.max(0, Math.min(this.y0 + dy, this.topY - this.height));
    this.y1 = y0 + this.height;
    this.y0 = y0;
  }

  setX(x0: number, x1: number): void {
    const width = Math.min(this.endX, Math.max(this.leastX, x1 - x0));
    const middle = (x0 + x1) / 2;
    this.x0 = Math.max(0, Math.min(middle - width / 2, this.endX - width));
    this.x1 = this.x0 + width;
  }
}
