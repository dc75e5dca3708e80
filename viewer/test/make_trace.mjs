// Writes a trace like a training's, with as many events as asked for: weights and optimiser state
// that stay, activations that pile up in the forward pass and go in the backward pass, temporaries.
//   node test/make_trace.mjs EVENTS FILE.csv
import { closeSync, openSync, writeSync } from 'node:fs';

const [events, path] = [Number(process.argv[2]), process.argv[3]];
if (!(events > 0) || !path) {
  console.error('usage: node test/make_trace.mjs EVENTS FILE.csv');
  process.exit(2);
}
let seed = 12345;
const random = () => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) / 2 ** 32;
const file = openSync(path, 'w');
let lines = ['time_us,op,id,size,stream\n'];
let written = 0;
let time = 0;
let next = 0;
const say = (op, id, size) => {
  if (written >= events) return;
  time += Math.floor(random() * 12);
  lines.push(`${time},${op},${id},${size},0\n`);
  ++written;
  if (lines.length > 20000) {
    writeSync(file, lines.join(''));
    lines = [];
  }
};
const alloc = (size) => {
  say('alloc', next, size);
  return { id: next++, size };
};
const free = (block) => say('free_completed', block.id, block.size);

const layers = 48;
for (let i = 0; i < layers * 12; ++i) alloc(512 * Math.ceil(random() * 16384));
while (written < events) {
  const batch = 0.5 + random();
  const kept = [];
  for (let layer = 0; layer < layers; ++layer) {
    for (let i = 0; i < 14; ++i) {
      const temporary = alloc(Math.ceil(batch * 2 ** (12 + random() * 11)));
      if (random() < 0.55) kept.push(alloc(Math.ceil(batch * 2 ** (14 + random() * 10))));
      free(temporary);
    }
  }
  while (kept.length > 0) {
    const gradient = alloc(Math.ceil(2 ** (12 + random() * 10)));
    free(kept.pop());
    free(gradient);
  }
}
writeSync(file, lines.join(''));
closeSync(file);
