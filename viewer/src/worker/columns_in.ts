// Brings columns in: from pieces that the page hands over, or from the server, in order.
import { ColumnReader, fromBase64, inflate, type Numbers } from '../data/columns';
import type { ColumnInfo } from '../data/summary';

export class ColumnsIn {
  private readonly infos = new Map<string, ColumnInfo>();
  private readonly texts = new Map<string, (text: string) => void>();
  private readonly early = new Map<string, string>();

  // base: the server's address; null: the page hands pieces over. `ask` tells it which.
  constructor(
    columns: ColumnInfo[],
    private readonly base: string | null,
    private readonly ask: (info: ColumnInfo) => void,
    private readonly progress: () => void,
  ) {
    for (const info of columns) this.infos.set(info.name, info);
  }

  info(name: string): ColumnInfo {
    const info = this.infos.get(name);
    if (!info) throw new Error(`the data has no column ${name}`);
    return info;
  }

  accept(name: string, piece: number, text: string): void {
    const key = `${name}/${piece}`;
    const waiting = this.texts.get(key);
    if (waiting) waiting(text);
    else this.early.set(key, text);
  }

  private async piece(name: string, number: number): Promise<Uint8Array> {
    const key = `${name}/${number}`;
    if (this.base !== null) {
      const answer = await fetch(new URL(`columns/${key}`, this.base));
      if (!answer.ok) throw new Error(`the server has no ${key}: ${answer.status}`);
      return new Uint8Array(await answer.arrayBuffer());
    }
    const here = this.early.get(key);
    this.early.delete(key);
    const text = here ?? await new Promise<string>((done) => this.texts.set(key, done));
    this.texts.delete(key);
    return fromBase64(text);
  }

  private async *pieces(name: string): AsyncGenerator<Uint8Array> {
    const info = this.info(name);
    if (this.base === null) this.ask(info);
    // The next piece travels while this one is unpacked.
    let next = info.pieces > 0 ? this.piece(name, 0) : null;
    for (let i = 0; i < info.pieces; ++i) {
      const packed = await next!;
      next = i + 1 < info.pieces ? this.piece(name, i + 1) : null;
      yield await inflate(packed);
      this.progress();
    }
  }

  async numbers(name: string): Promise<Numbers> {
    const reader = new ColumnReader(this.info(name));
    for await (const bytes of this.pieces(name)) reader.add(bytes);
    return reader.finish();
  }

  async text(name: string): Promise<string> {
    const parts: BlobPart[] = [];
    for await (const bytes of this.pieces(name)) parts.push(bytes as BlobPart);
    return new Blob(parts).text();
  }
}
