// From blocks to pixels.

// All colours as a canvas keeps them in memory (little-endian: 0xAABBGGRR).
export interface Palette {
  groups: number[];     // of the largest groups, in order; the last one is for all others
  background: number;
  free: number;         // memory held in which no block lies, hatched with the next
  freeLine: number;
  dark: boolean;
}

function mix(a: number, b: number, share: number): number {
  const part = (shift: number) =>
    Math.round(((a >>> shift) & 255) * (1 - share) + ((b >>> shift) & 255) * share) << shift;
  return (part(0) | part(8) | part(16) | 0xff000000) >>> 0;
}

const kShades = 4;

// The colour of every block: that of its group's class, in one of four shades, so that neighbours
// of one group can be told apart; faded where the search does not match.
export class Colours {
  private plain: Uint32Array;
  private faded: Uint32Array;
  private edges: Uint32Array;

  constructor(
    readonly palette: Palette,
    private readonly classOf: Uint8Array,          // by block
    private readonly matches: Uint8Array | null,   // by place; null: no search
    private readonly place: ArrayLike<number>,     // by block
  ) {
    const { groups, background, dark } = palette;
    const toward = dark ? 0xff000000 : 0xffffffff;
    this.plain = new Uint32Array(groups.length * kShades);
    this.faded = new Uint32Array(this.plain.length);
    this.edges = new Uint32Array(this.plain.length);
    groups.forEach((colour, i) => {
      for (let shade = 0; shade < kShades; ++shade) {
        const shaded = mix(colour, toward, shade * 0.09);
        this.plain[i * kShades + shade] = shaded;
        this.faded[i * kShades + shade] = mix(shaded, background, 0.82);
        this.edges[i * kShades + shade] = mix(shaded, 0xff000000, dark ? 0.45 : 0.3);
      }
    });
  }

  private key(block: number): number {
    return this.classOf[block] * kShades + (Math.imul(block, 0x9e3779b1) >>> 30);
  }

  private fades(block: number): boolean {
    return this.matches !== null && this.matches[this.place[block]] === 0;
  }

  // Pixels for an image of block numbers; negative numbers are background and free memory. A block
  // that is large enough has an edge on its top and left.
  paint(ids: Int32Array, width: number, height: number): Uint8ClampedArray<ArrayBuffer> {
    const out = new Uint32Array(ids.length);
    const { background, free, freeLine } = this.palette;
    for (let y = 0, i = 0; y < height; ++y) {
      for (let x = 0; x < width; ++x, ++i) {
        const id = ids[i];
        if (id < 0) {
          out[i] = id === -1 ? background : (x + y) % 6 < 1 ? freeLine : free;
          continue;
        }
        const key = this.key(id);
        const top = y > 0 && y + 3 < height && ids[i - width] !== id &&
          ids[i + width] === id && ids[i + 2 * width] === id && ids[i + 3 * width] === id;
        const left = x > 0 && x + 3 < width && ids[i - 1] !== id &&
          ids[i + 1] === id && ids[i + 2] === id && ids[i + 3] === id;
        out[i] = this.fades(id) ? this.faded[key] : top || left ? this.edges[key] : this.plain[key];
      }
    }
    return new Uint8ClampedArray(out.buffer);
  }
}
