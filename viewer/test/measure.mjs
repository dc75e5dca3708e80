// Opens a page in Chromium and prints how long that takes and how many frames a second it draws
// while somebody zooms and pans without a pause.
//   node test/measure.mjs FILE.html|URL [--width 1440] [--ratio 2] [--least-fps 30]
//                         [--most-ms 2000] [--json]
// --width: of the window; --ratio: device pixels to a CSS pixel.
// Exit status 1 when a bound is given and missed.
import { pathToFileURL } from 'node:url';
import { launch, waitReady } from './browser.mjs';

const [target, ...rest] = process.argv.slice(2);
if (!target) {
  console.error('usage: node test/measure.mjs FILE.html|URL [--least-fps N] [--most-ms N]');
  process.exit(2);
}
const bound = (name) => {
  const at = rest.indexOf(name);
  return at < 0 ? null : Number(rest[at + 1]);
};

const kOpenings = 3;
const browser = await launch();
const url = /^https?:/.test(target) ? target : pathToFileURL(target).href;

// From the navigation's start to the first frame that shows every block.
const openings = [];
let page;
for (let i = 0; i < kOpenings; ++i) {
  await page?.close();
  page = await browser.newPage({ viewport: { width: bound('--width') ?? 1440, height: 900 },
                                 deviceScaleFactor: bound('--ratio') ?? 1 });
  await page.goto(url, { waitUntil: 'commit' });
  await waitReady(page);
  openings.push(await page.evaluate(() => ({
    ready: performance.getEntriesByName('tenon-ready')[0].startTime,
    summary: performance.getEntriesByName('tenon-summary')[0].startTime,
  })));
}

// The pointer's wheel turns at every frame, so that no frame is idle.
async function frames(page, seconds, kind) {
  return page.evaluate(async ({ seconds, kind }) => {
    const plot = document.getElementById('plot');
    const rect = plot.getBoundingClientRect();
    const stamps = [];
    await new Promise((done) => {
      const start = performance.now();
      let n = 0;
      const turn = (now) => {
        stamps.push(now);
        const elapsed = performance.now() - start;
        if (elapsed > seconds * 1000) return done();
        ++n;
        // In and out again, around a place that wanders; or along, deep inside.
        const closer = Math.floor(elapsed / 1200) % 2 === 0;
        const wheel = kind === 'zoom'
          ? { deltaY: closer ? -30 : 30 }
          : { deltaX: Math.floor(elapsed / 1500) % 2 === 0 ? 24 : -24, shiftKey: true };
        plot.dispatchEvent(new WheelEvent('wheel', {
          ...wheel, bubbles: true, cancelable: true,
          clientX: rect.left + rect.width * (0.3 + 0.4 * Math.sin(n / 40) ** 2),
          clientY: rect.top + rect.height / 2,
        }));
        requestAnimationFrame(turn);
      };
      requestAnimationFrame(turn);
    });
    return stamps;
  }, { seconds, kind });
}

function describe(stamps) {
  const gaps = stamps.slice(1).map((t, i) => t - stamps[i]).sort((a, b) => a - b);
  const total = stamps[stamps.length - 1] - stamps[0];
  const at = (share) => gaps[Math.min(gaps.length - 1, Math.floor(gaps.length * share))];
  return { fps: 1000 * gaps.length / total, median_ms: at(0.5), p99_ms: at(0.99), worst_ms: at(1) };
}

const zoom = describe(await frames(page, 6, 'zoom'));
await page.evaluate(() => document.getElementById('zoom-reset').click());
for (let i = 0; i < 4; ++i) await page.evaluate(() => document.getElementById('zoom-in').click());
const pan = describe(await frames(page, 6, 'pan'));
const drawn = await page.evaluate(async () => {
  document.getElementById('zoom-reset').click();
  const { plot } = window.tenon;
  await new Promise((done) => setTimeout(done, 300));
  while (!plot.settled) await new Promise((done) => setTimeout(done, 20));
  return plot.lastAnswerMs;
});
const events = await page.evaluate(() =>
  JSON.parse(document.getElementById('tenon-summary').textContent).events);
await browser.close();

const middle = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
const result = {
  events,
  open_ms: Math.round(middle(openings.map((o) => o.ready))),
  summary_ms: Math.round(middle(openings.map((o) => o.summary))),
  zoom, pan, whole_redraw_ms: Math.round(drawn),
};
const line = (name, f) => `${name}: ${f.fps.toFixed(1)} frames a second ` +
  `(median ${f.median_ms.toFixed(1)} ms, 99 % ${f.p99_ms.toFixed(1)} ms, worst ${f.worst_ms.toFixed(1)} ms)`;
console.log(rest.includes('--json') ? JSON.stringify(result) : [
  `${events.toLocaleString('en-US')} events, ${bound('--width') ?? 1440} px wide`,
  `open: ${result.open_ms} ms until every block is drawn, ${result.summary_ms} ms until the ` +
    `figures stand (median of ${kOpenings})`,
  line('zoom', zoom), line('pan', pan),
  `a fresh drawing of everything takes the worker ${result.whole_redraw_ms} ms`].join('\n'));
const leastFps = bound('--least-fps');
const mostMs = bound('--most-ms');
if (leastFps !== null && Math.min(zoom.fps, pan.fps) < leastFps) process.exitCode = 1;
if (mostMs !== null && result.open_ms > mostMs) process.exitCode = 1;
