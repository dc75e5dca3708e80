// The page's end of the worker: questions and answers.
import type { ColumnInfo, Summary } from '../data/summary';
import type { Answer, Request } from '../worker/protocol';
import Worker from '../worker/worker?worker&inline';

type AnswerOf<K extends Answer['kind']> = Extract<Answer, { kind: K }>;
// A question has an id, which the client gives it.
type Question = Extract<Request, { id: number }>;
type WithoutId<Q> = Q extends Question ? Omit<Q, 'id'> : never;

export interface ClientEvents {
  progress(share: number): void;
  ready(answer: AnswerOf<'ready'>): void;
  error(message: string): void;
}

export class Client {
  private readonly worker = new Worker();
  private readonly waiting = new Map<number, (answer: Answer) => void>();
  private next = 1;

  constructor(private readonly events: ClientEvents) {
    this.worker.onmessage = (message: MessageEvent<Answer>) => this.take(message.data);
    this.worker.onerror = (error) => events.error(error.message);
  }

  open(summary: Summary): void {
    this.worker.postMessage({ kind: 'open', summary, base: location.href } satisfies Request);
  }

  tell(request: Exclude<Request, Question>): void {
    this.worker.postMessage(request);
  }

  ask<K extends Question['kind'] & Answer['kind']>(
    question: Extract<WithoutId<Question>, { kind: K }>): Promise<AnswerOf<K>> {
    const id = this.next++;
    return new Promise((done) => {
      this.waiting.set(id, done as (answer: Answer) => void);
      this.worker.postMessage({ ...question, id });
    });
  }

  private take(answer: Answer): void {
    switch (answer.kind) {
      case 'progress': return this.events.progress(answer.all === 0 ? 1 : answer.done / answer.all);
      case 'ready': return this.events.ready(answer);
      case 'error': return this.events.error(answer.message);
      case 'needs': return answer.columns.forEach((info) => this.handOver(info));
      default: {
        const done = this.waiting.get(answer.id);
        this.waiting.delete(answer.id);
        done?.(answer);
      }
    }
  }

  // Pieces lie in the page as text. They are handed over while the parser is still busy with those
  // behind them, and once handed over the page does not need them any more.
  private handOver(info: ColumnInfo, from = 0): void {
    for (let piece = from; piece < info.pieces; ++piece) {
      const name = `${info.name}/${piece}`;
      const node = document.querySelector(`script[data-piece="${name}"]`);
      // What the parser has gone beyond is whole.
      if (!node?.nextSibling && document.readyState === 'loading') {
        setTimeout(() => this.handOver(info, piece), 5);
        return;
      }
      if (!node) return this.events.error(`the page has no piece ${name}: it is cut off`);
      this.tell({ kind: 'piece', name: info.name, piece, text: node.textContent ?? '' });
      node.remove();
    }
  }
}
