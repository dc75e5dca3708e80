// Undoes what src/tenon/lab/view/column.cc does: inflate, join planes, sum differences.
import type { ColumnInfo } from './summary';

export type Numbers = Uint8Array | Uint16Array | Uint32Array | Float64Array;

export async function inflate(packed: Uint8Array): Promise<Uint8Array> {
  const stream = new Blob([packed as BlobPart]).stream()
    .pipeThrough(new DecompressionStream('deflate-raw'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

export function fromBase64(text: string): Uint8Array {
  const native = (Uint8Array as unknown as { fromBase64?: (t: string) => Uint8Array }).fromBase64;
  if (native) return native.call(Uint8Array, text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; ++i) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

const kBytes = { u8: 1, u16: 2, u32: 4, u64: 8, text: 1 };

// Collects the pieces of one column, in order. 64-bit numbers and sums become doubles, which are
// exact up to 2^53: eight thousand tebibytes, or microseconds of three centuries.
export class ColumnReader {
  readonly numbers: Numbers;
  private filled = 0;
  private sum = 0;

  constructor(private readonly info: ColumnInfo) {
    const n = info.count;
    if (info.delta || info.type === 'u64') this.numbers = new Float64Array(n);
    else if (info.type === 'u32') this.numbers = new Uint32Array(n);
    else if (info.type === 'u16') this.numbers = new Uint16Array(n);
    else this.numbers = new Uint8Array(n);
  }

  add(bytes: Uint8Array): void {
    const width = kBytes[this.info.type];
    const n = bytes.length / width;
    if (!Number.isInteger(n) || this.filled + n > this.info.count) {
      throw new Error(`column ${this.info.name}: a piece of ${bytes.length} bytes does not fit`);
    }
    const out = this.numbers;
    const at = this.filled;
    if (width === 1 && !this.info.delta) {
      (out as Uint8Array).set(bytes, at);
    } else {
      let sum = this.sum;
      for (let i = 0; i < n; ++i) {
        let value = bytes[i];
        if (width > 1) value += bytes[n + i] * 0x100;
        if (width > 2) value += bytes[2 * n + i] * 0x10000 + bytes[3 * n + i] * 0x1000000;
        if (width > 4) {
          value += (bytes[4 * n + i] + bytes[5 * n + i] * 0x100 + bytes[6 * n + i] * 0x10000 +
                    bytes[7 * n + i] * 0x1000000) * 0x100000000;
        }
        out[at + i] = this.info.delta ? (sum += value) : value;
      }
      this.sum = sum;
    }
    this.filled += n;
  }

  finish(): Numbers {
    if (this.filled !== this.info.count) {
      throw new Error(`column ${this.info.name}: ${this.filled} of ${this.info.count} numbers`);
    }
    return this.numbers;
  }
}
