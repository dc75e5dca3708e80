// The page in a real browser: what it shows is what the command says.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { failingSnapshot } from './pickle.mjs';
import { launch, waitReady, waitSettled } from './browser.mjs';

const root = resolve(fileURLToPath(import.meta.url), '../../..');
const tenon = process.env.TENON ?? join(root, 'build/tenon');
const snapshot = join(root, 'data/snapshots/gpt2.pickle');
const trace = join(root, 'data/traces/multistream_prefetch.csv.zst');
const folder = mkdtempSync(join(tmpdir(), 'tenon-viewer-'));
let browser;

const run = (...args) => execFileSync(tenon, args, { encoding: 'utf8', maxBuffer: 1 << 28,
                                                     stdio: ['ignore', 'pipe', 'ignore'] });
const json = (...args) => JSON.parse(run(...args));

async function open(file, { options = [], ...context } = {}) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 1000 }, ...context });
  const problems = [];
  page.on('pageerror', (error) => problems.push(error.message));
  page.on('console', (line) => line.type() === 'error' && problems.push(line.text()));
  page.on('request', (request) => {
    if (/^https?:/.test(request.url())) problems.push(`asked for ${request.url()}`);
  });
  const html = join(folder, `${Math.random().toString(36).slice(2)}.html`);
  run('view', file, '-o', html, ...options);
  await page.goto(pathToFileURL(html).href);
  await waitReady(page);
  await waitSettled(page);
  page.problems = problems;
  return page;
}

// As the page writes them.
function bytes(value) {
  const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (value >= 1024) [value, unit] = [value / 1024, unit + 1];
  if (unit === 0 || Number.isInteger(value)) return `${value} ${units[unit]}`;
  return `${value.toFixed(value >= 1000 ? 0 : value >= 100 ? 1 : 2)} ${units[unit]}`;
}

const text = (page, selector) => page.locator(selector).first().innerText();
const momentText = (page) => page.locator('#plot').getAttribute('aria-valuetext');
const view = (page) => page.evaluate(() => {
  const { x0, x1, y0, y1 } = window.tenon.plot.viewport;
  return { x0, x1, y0, y1 };
});
// The middle of the plot, in the page's pixels.
async function middle(page) {
  await page.locator('#plot').scrollIntoViewIfNeeded();
  const box = await page.locator('#plot').boundingBox();
  return { x: box.x + 76 + (box.width - 84) / 2, y: box.y + 6 + (box.height - 42) / 2, box };
}

before(async () => { browser = await launch(); });
after(async () => {
  await browser.close();
  rmSync(folder, { recursive: true });
});

describe('figures', () => {
  for (const file of [snapshot, trace]) {
    test(`${file.split('/').pop()} shows what --json says`, async () => {
      const said = json('view', file, '--json');
      const replayed = json('replay', file, '--json', '--passes', '0', '--policy',
                            'caching,expandable,stitched,plan');
      const page = await open(file);
      assert.equal(await text(page, '#peak'), bytes(replayed[0].live_peak_bytes));
      const cards = await page.locator('.cards li').allInnerTexts();
      said.largest_at_peak.slice(0, 3).forEach((group, i) => {
        assert.ok(cards[i].includes(bytes(group.bytes)), cards[i]);
        assert.ok(cards[i].includes(group.name), cards[i]);
      });
      // The moment shown first is the peak, computed in the page from the columns.
      const moment = await momentText(page);
      assert.ok(moment.includes(`${bytes(said.live_peak_bytes)} live in ` +
        `${said.live_peak_allocations.toLocaleString('en-US')} allocations`), moment);
      assert.ok(moment.includes(`event ${said.live_peak_event.toLocaleString('en-US')}`), moment);
      const sites = page.locator('#tables table', { hasText: /by (call site|size)/ }).first();
      const more = page.locator('#tables button.more').first();
      if (said.largest_at_peak.length > 10) await more.click();
      const rows = await sites.locator('tbody tr [data-bytes]')
        .evaluateAll((cells) => cells.map((cell) => Number(cell.dataset.bytes)));
      assert.deepEqual(rows.slice(0, 20), said.largest_at_peak.map((group) => group.bytes));
      for (const policy of replayed) {
        const cell = page.locator(`[data-policy="${policy.policy}"]`);
        assert.equal(await cell.getAttribute('data-bytes'), String(policy.reserved_peak_bytes));
        assert.equal(await cell.innerText(), bytes(policy.reserved_peak_bytes));
      }
      assert.deepEqual(page.problems, []);
      await page.close();
    });
  }

  test('the top column of the plot is the peak, whatever the zoom', async () => {
    const page = await open(snapshot);
    const most = () => page.evaluate(() => Math.max(
      ...window.tenon.plot.detail.answer.most.filter((value) => !Number.isNaN(value))));
    const { live_peak_bytes: peak } = json('view', snapshot, '--json', '--policy', 'none');
    assert.equal(await most(), peak);
    for (let i = 0; i < 6; ++i) await page.locator('#zoom-in').click();
    await waitSettled(page);
    assert.equal(await most(), peak);  // the moment chosen, the peak, stays in view
    await page.close();
  });

  test('the address map adds up, for every policy', async () => {
    const page = await open(snapshot, { options: ['--policy', 'caching,expandable,stitched,plan,pool,buddy'] });
    const { live_peak_bytes: peak } = json('view', snapshot, '--json', '--policy', 'none');
    for (let policy = 0; policy < 7; ++policy) {  // the recording's own is the first
      await page.locator('#map-policy').selectOption(String(policy));
      await waitSettled(page);
      assert.match(await text(page, '#map-figures'), new RegExp(`${bytes(peak)} of it in use`));
    }
    await page.close();
  });
});

describe('the plot', () => {
  test('zooms at the pointer, pans, and shows everything again', async () => {
    const page = await open(snapshot);
    const all = await view(page);
    const { x, y } = await middle(page);
    await page.mouse.move(x, y);
    await page.mouse.wheel(0, -400);
    await waitSettled(page);
    const near = await view(page);
    assert.ok(near.x1 - near.x0 < (all.x1 - all.x0) * 0.7);
    // What was under the pointer is there still.
    assert.ok(Math.abs((near.x0 + near.x1) / 2 - (all.x0 + all.x1) / 2) < (all.x1 - all.x0) * 0.01);
    await page.mouse.down();
    await page.mouse.move(x + 120, y, { steps: 4 });
    await page.mouse.up();
    const moved = await view(page);
    assert.ok(moved.x0 < near.x0 && Math.abs(moved.x1 - moved.x0 - (near.x1 - near.x0)) < 1e-6);
    await page.locator('#zoom-reset').click();
    assert.deepEqual(await view(page), all);
    await page.close();
  });

  test('names the block under the pointer, and chooses it by a click', async () => {
    const page = await open(snapshot);
    const { x, box } = await middle(page);
    const y = box.y + box.height - 60;  // deep in the stack
    await page.mouse.move(x, y);
    await page.waitForSelector('#tip:not([hidden])');
    const tip = await text(page, '#tip .size');
    const frames = await page.locator('#tip ol.stack li').count();
    assert.ok(frames >= 1 && frames <= 3);
    await page.mouse.click(x, y);
    await page.waitForFunction(() => document.querySelector('#details').textContent.includes('The block chosen'));
    assert.equal(await text(page, '#details .size'), tip);
    // The page's own arithmetic: at that moment and height lies that block.
    const agrees = await page.evaluate(async () => {
      const { plot, state } = window.tenon;
      const { ids, ops } = plot.detail.answer;
      const { view } = plot.detail;
      let wrong = 0;
      for (let i = 0; i < 400; ++i) {
        const column = (i * 7919) % view.width;
        const row = (i * 104729) % view.height;
        const op = ops[column];
        const height = view.y1 - (row + 0.5) * (view.y1 - view.y0) / view.height;
        const { facts } = await plot.client.ask({ kind: 'find', op, height });
        if ((facts?.block ?? -1) !== ids[row * view.width + column]) ++wrong;
      }
      return wrong === 0 && state.now.block !== null;
    });
    assert.ok(agrees);
    await page.close();
  });

  test('zooms to a block by a double click, and along operations too', async () => {
    const page = await open(snapshot);
    const { x, box } = await middle(page);
    const all = await view(page);
    await page.mouse.dblclick(x + 150, box.y + box.height - 150);
    await waitSettled(page);
    const near = await view(page);
    assert.ok(near.x1 - near.x0 < all.x1 - all.x0);
    await page.locator('#axis').selectOption('event');
    await waitSettled(page);
    assert.deepEqual((await view(page)).x1, json('view', snapshot, '--json', '--policy', 'none').events);
    await page.locator('#order').selectOption('group');
    await waitSettled(page);
    assert.deepEqual(page.problems, []);
    await page.close();
  });

  test('is sharp on dense screens', async () => {
    const page = await open(snapshot, { deviceScaleFactor: 2 });
    const [pixels, css] = await page.evaluate(() => {
      const canvas = document.getElementById('plot');
      return [canvas.width, canvas.clientWidth];
    });
    assert.equal(pixels, 2 * css);
    const drawn = await page.evaluate(() => window.tenon.plot.drawnView.width);
    assert.equal(drawn, Math.round((css - 84) * 2));
    await page.close();
  });
});

describe('search', () => {
  test('finds by call site, counts, and fades the rest', async () => {
    const page = await open(snapshot);
    const before = await page.locator('#plot').screenshot();
    await page.keyboard.press('/');
    await page.keyboard.type('activations.py:66');
    await page.waitForSelector('#search-said');
    await waitSettled(page);
    const said = json('view', snapshot, '--json', '--policy', 'none').largest_at_peak
      .filter((group) => group.name.includes('activations.py:66'));
    const found = page.locator('#search-said');
    // Stacks that pass through that line count too, so at least as much.
    assert.ok(Number(await found.getAttribute('data-peak')) >=
      said.reduce((sum, group) => sum + group.bytes, 0));
    assert.notDeepEqual(await page.locator('#plot').screenshot(), before);
    await page.locator('#search').fill('no such place anywhere');
    await page.waitForFunction(() => document.querySelector('#search-said')?.textContent.includes('Nothing'));
    await page.locator('#search').fill('');
    await page.waitForSelector('#search-results', { state: 'hidden' });
    await page.close();
  });

  test('a card searches for its call site', async () => {
    const page = await open(snapshot);
    await page.locator('.cards button').first().click();
    await page.waitForSelector('#search-said');
    assert.ok(Number(await page.locator('#search-said').getAttribute('data-allocations')) > 0);
    await page.close();
  });
});

describe('for everybody', () => {
  test('works by key alone and says what it does', async () => {
    const page = await open(snapshot);
    await page.locator('#plot').focus();
    const peak = await momentText(page);
    const press = async (key) => {
      const was = await momentText(page);
      await page.keyboard.press(key);
      await page.waitForFunction((before) =>
        document.getElementById('plot').getAttribute('aria-valuetext') !== before, was);
      return momentText(page);
    };
    assert.notEqual(await press('ArrowLeft'), peak);
    await press('Home');
    assert.equal(await page.locator('#plot').getAttribute('aria-valuenow'), '0');
    await press('Shift+ArrowRight');
    assert.equal(await page.locator('#plot').getAttribute('aria-valuenow'), '1');
    assert.equal(await press('p'), peak);
    await page.keyboard.press('ArrowUp');
    await page.waitForFunction(() => window.tenon.state.now.block !== null);
    const first = await page.evaluate(() => window.tenon.state.now.block);
    await page.keyboard.press('ArrowUp');
    await page.waitForFunction((block) => window.tenon.state.now.block !== block, first);
    await page.waitForFunction(() => /\d (bytes|[KMG]iB)\. .*Live /.test(document.getElementById('said').textContent));
    await page.keyboard.press('0');
    const all = await view(page);
    await page.keyboard.press('+');
    assert.ok((await view(page)).x1 - (await view(page)).x0 < all.x1 - all.x0);
    await page.keyboard.press('0');
    assert.deepEqual(await view(page), all);
    await page.close();
  });

  test('has names, roles and no focus that is lost', async () => {
    const page = await open(snapshot);
    const nameless = await page.evaluate(() =>
      [...document.querySelectorAll('button, input, select, canvas:not([aria-hidden]), [role=region]')]
        .filter((e) => !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') ||
                         e.textContent.trim() || e.labels?.length || e.title))
        .map((e) => e.outerHTML));
    assert.deepEqual(nameless, []);
    const tables = await page.locator('table').evaluateAll((all) => all.every((t) =>
      t.caption && t.querySelectorAll('thead th[scope=col]').length > 0));
    assert.ok(tables);
    // Tab goes through everything and comes to the plot.
    const seen = new Set();
    for (let i = 0; i < 40; ++i) {
      await page.keyboard.press('Tab');
      seen.add(await page.evaluate(() => document.activeElement.id || document.activeElement.tagName));
    }
    for (const id of ['theme', 'search', 'axis', 'zoom-in', 'plot', 'map-policy']) {
      assert.ok(seen.has(id), `${id} cannot be reached: ${[...seen]}`);
    }
    await page.close();
  });

  test('follows the system to dark and back, and the reader before the system', async () => {
    const page = await open(snapshot, { colorScheme: 'dark' });
    const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const pixel = () => page.evaluate(() => [...document.getElementById('plot').getContext('2d')
      .getImageData(400, 30, 1, 1).data]);
    const dark = await paper();
    const drawn = await pixel();
    await page.emulateMedia({ colorScheme: 'light' });
    await waitSettled(page);
    assert.notEqual(await paper(), dark);
    await page.locator('#theme').selectOption('dark');
    await waitSettled(page);
    assert.equal(await paper(), dark);
    assert.deepEqual(await pixel(), drawn);
    await page.close();
  });

  test('text stands out enough, light and dark', async () => {
    const page = await open(snapshot);
    for (const theme of ['light', 'dark']) {
      await page.locator('#theme').selectOption(theme);
      const poor = await page.evaluate(() => {
        const rgb = (css) => css.match(/[\d.]+/g).slice(0, 3).map(Number);
        const luminance = (css) => {
          const [r, g, b] = rgb(css).map((v) => v / 255)
            .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
          return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const backdrop = (e) => {
          for (; e; e = e.parentElement) {
            const colour = getComputedStyle(e).backgroundColor;
            if (!/, 0\)$|transparent/.test(colour)) return colour;
          }
          return 'rgb(255,255,255)';
        };
        const out = [];
        for (const e of document.querySelectorAll('h1,h2,p,li,label,button,select,th,td,caption,summary')) {
          if (!e.offsetParent) continue;
          const [a, b] = [luminance(getComputedStyle(e).color), luminance(backdrop(e))];
          const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
          if (contrast < 4.5) out.push(`${e.tagName} ${e.className} ${contrast.toFixed(2)}`);
        }
        return out;
      });
      assert.deepEqual(poor, [], theme);
    }
    await page.close();
  });

  test('does not jump while it opens', async () => {
    const page = await browser.newPage({ viewport: { width: 1280, height: 1000 } });
    await page.addInitScript(() => {
      window.shifts = 0;
      new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) window.shifts += entry.value;
      }).observe({ type: 'layout-shift', buffered: true });
    });
    const html = join(folder, 'still.html');
    run('view', snapshot, '-o', html);
    await page.goto(pathToFileURL(html).href);
    await waitReady(page);
    await waitSettled(page);
    assert.ok(await page.evaluate(() => window.shifts) < 0.02);
    await page.close();
  });
});

describe('out of memory', () => {
  test('is said first, marked in the plot, and listed', async () => {
    const file = join(folder, 'failing.pickle');
    writeFileSync(file, failingSnapshot('grow'));
    const page = await open(file);
    const banner = await text(page, '#facts .oom');
    assert.match(banner, /^Out of memory at 5 ms:/);
    assert.match(banner, /64 MiB were asked for while 256 MiB were in use and the device had 11\.77 MiB left/);
    const { alarmed, failures } = await page.evaluate(() => {
      const { marks } = window.tenon.plot.detail.answer;
      const canvas = document.getElementById('plot');
      const row = canvas.getContext('2d').getImageData(0, 8, canvas.width, 1).data;
      let red = 0;
      for (let i = 0; i < row.length; i += 4) if (row[i] > 150 && row[i + 1] < 60 && row[i + 2] < 60) ++red;
      return { alarmed: red, failures: marks.filter((bits) => bits & 1).length };
    });
    assert.equal(failures, 1);
    assert.ok(alarmed > 5, `${alarmed} red pixels`);
    // What the recording's own allocator held: four segments, then three.
    const recorded = page.locator('[data-policy=recorded]');
    assert.equal(await recorded.getAttribute('data-bytes'), String(256 << 20));
    assert.match(await text(page, '#map-figures'), /As recorded, the allocator holds 256 MiB; 256 MiB of it in use by 4/);
    await page.locator('#plot').focus();
    await page.keyboard.press('End');
    await page.waitForFunction(() => document.querySelector('#map-figures').textContent.includes('192 MiB of it'));
    await page.getByText('Events', { exact: true }).click();
    const rows = await page.locator('#tables details').last().locator('tbody tr').allInnerTexts();
    assert.match(rows[0], /^out of memory\s+64 MiB/);
    assert.equal(rows.length, 6);
    // What was live right before the request, by call site.
    const failure = page.locator('#failures details').first();
    assert.match(await failure.locator('summary').innerText(), /64 MiB requested, 256 MiB live/);
    assert.match(await failure.innerText(), /grow train\.py:7/);
    const live = await failure.locator('table', { hasText: 'by call site' })
      .locator('tbody tr').allInnerTexts();
    assert.equal(live.length, 1);
    assert.match(live[0], /grow train\.py:7\s+256 MiB\s+100 %\s+4/);
    assert.deepEqual(page.problems, []);
    await page.close();
  });
});

describe('a narrow screen', () => {
  for (const width of [390, 1600]) {
    test(`${width} px: nothing is wider than the page, no table longer than a screen`, async () => {
      const page = await open(snapshot, { viewport: { width, height: 844 } });
      const seen = await page.evaluate(() => ({
        wide: document.documentElement.scrollWidth,
        tall: document.documentElement.scrollHeight,
        tables: [...document.querySelectorAll('table')]
          .filter((table) => table.offsetHeight > 844).map((table) => table.caption.textContent),
        cut: [...document.querySelectorAll('.legend li, .bar select, .bar button')]
          .filter((e) => e.getBoundingClientRect().right > innerWidth + 1)
          .map((e) => e.textContent),
      }));
      assert.equal(seen.wide, width);
      assert.ok(seen.tall < 8000, `${seen.tall} px tall`);
      assert.deepEqual(seen.tables, []);
      assert.deepEqual(seen.cut, []);
      assert.deepEqual(page.problems, []);
      await page.close();
    });
  }

  test('a long table unfolds and folds again', async () => {
    const page = await open(snapshot);
    const button = page.locator('#tables button.more').first();
    const rows = () => page.locator('#tables table', { hasText: 'by call site' }).first()
      .locator('tbody tr:visible').count();
    assert.equal(await rows(), 10);
    await button.click();
    assert.equal(await button.getAttribute('aria-expanded'), 'true');
    assert.ok(await rows() > 10);
    await button.click();
    assert.equal(await rows(), 10);
    await page.close();
  });
});

describe('a recording without times', () => {
  test('goes by events', async () => {
    const file = join(folder, 'untimed.pickle');
    writeFileSync(file, failingSnapshot('grow', { timed: false }));
    const page = await open(file);
    assert.equal(await page.locator('#axis').inputValue(), 'event');
    assert.equal(await page.locator('#axis option').count(), 1);
    const drawn = await page.evaluate(() => window.tenon.plot.detail.answer.most);
    const levels = new Set(Object.values(drawn).filter((value) => !Number.isNaN(value)));
    assert.ok(levels.size >= 4, [...levels].join());
    assert.match(await text(page, '#facts .oom'), /^Out of memory at event \d/);
    for (const shown of ['#facts', '#details', '#failures', '#tables']) {
      assert.doesNotMatch(await text(page, shown), /\d (µs|ms|s)\b/, shown);
    }
    assert.deepEqual(page.problems, []);
    await page.close();
  });
});

describe('the peak', () => {
  test('is zoomed to by its button', async () => {
    const page = await open(snapshot);
    const all = await view(page);
    await page.locator('#to-peak').click();
    await waitSettled(page);
    const near = await view(page);
    const peak = json('view', snapshot, '--json', '--policy', 'none').live_peak_time_us;
    assert.ok(near.x0 <= peak && peak <= near.x1);
    assert.ok(near.x1 - near.x0 <= (all.x1 - all.x0) / 4);
    await page.close();
  });
});

describe('hostile and odd input', () => {
  test('names of functions are text and nothing else', async () => {
    const evil = '</script><script>document.title="broken"</script><img src=x onerror=alert(1)>';
    const file = join(folder, 'evil.pickle');
    writeFileSync(file, failingSnapshot(evil));
    const page = await open(file);
    assert.equal(await page.locator('img').count(), 0);
    assert.match(await page.title(), /^evil/);
    assert.ok((await text(page, '.cards li')).includes(evil));
    await page.locator('#search').fill('onerror=alert');
    await page.waitForSelector('#search-said');
    assert.ok((await text(page, '#search-results')).includes(evil));
    const { x, box } = await middle(page);
    await page.mouse.move(x, box.y + box.height - 60);
    await page.waitForSelector('#tip:not([hidden])');
    assert.ok((await text(page, '#tip')).includes(evil));
    assert.deepEqual(page.problems, []);
    await page.close();
  });

  test('names of files and sizes are text and nothing else', async () => {
    const evil = join(folder, `x<img src=x onerror=document.title='broken'>.csv`);
    writeFileSync(evil, 'time_us,op,id,size,stream\n0,alloc,0,100,0\n5,free_completed,0,100,0\n');
    const page = await open(evil);
    assert.equal(await page.locator('img').count(), 0);
    assert.match(await page.title(), /^x<img src=x onerror/);
    assert.match(await text(page, '#title'), /<img src=x/);
    assert.deepEqual(page.problems, []);
    await page.close();
  });

  test('a single event, and time that stands still', async () => {
    const one = join(folder, 'one.csv');
    writeFileSync(one, 'time_us,op,id,size,stream\n7,alloc,0,4096,0\n7,alloc,1,0,0\n');
    const page = await open(one);
    assert.equal(await text(page, '#peak'), '4 KiB');
    await page.locator('#axis').selectOption('event');
    await waitSettled(page);
    assert.deepEqual(page.problems, []);
    await page.close();
  });

  test('a page that is cut off says so', async () => {
    const whole = join(folder, 'whole.html');
    run('view', snapshot, '-o', whole);
    const { readFileSync } = await import('node:fs');
    const html = readFileSync(whole, 'utf8');
    const cut = join(folder, 'cut.html');
    writeFileSync(cut, html.slice(0, html.indexOf('data-piece="size/0"')));
    const page = await browser.newPage();
    await page.goto(pathToFileURL(cut).href);
    await page.waitForSelector('.failure');
    assert.match(await text(page, '.failure'), /cut off|piece/);
    await page.close();
  });
});

describe('policies', () => {
  test('that run out of memory are marked', async () => {
    const page = await open(snapshot, { options: ['--capacity', '7400MiB'] });
    const said = json('view', snapshot, '--json', '--capacity', '7400MiB');
    assert.ok(said.policies.some((policy) => policy.out_of_memory));
    const failed = await page.locator('#policies .failed').count();
    assert.equal(failed, said.policies.filter((policy) => policy.out_of_memory).length);
    await page.close();
  });
});

describe('tenon serve', () => {
  test('sends the data in pieces as they are needed', async () => {
    const child = spawn(tenon, ['serve', trace], { stdio: ['ignore', 'pipe', 'ignore'] });
    try {
      const line = await new Promise((done) => child.stdout.once('data', (data) => done(String(data))));
      const url = line.match(/http:\/\/127\.0\.0\.1:\d+\//)[0];
      const page = await browser.newPage({ viewport: { width: 1280, height: 1000 } });
      const asked = [];
      page.on('request', (request) => asked.push(new URL(request.url()).pathname));
      const problems = [];
      page.on('pageerror', (error) => problems.push(error.message));
      await page.goto(url);
      await waitReady(page);
      await waitSettled(page);
      assert.equal(await text(page, '#peak'), bytes(json('view', trace, '--json', '--policy', 'none').live_peak_bytes));
      assert.ok(asked.includes('/columns/time_us/0'));
      assert.ok(asked.includes('/columns/p0.place/0'));
      assert.ok(!asked.some((path) => path.startsWith('/columns/p1.place')), 'other maps are not read yet');
      await page.locator('#map-policy').selectOption('1');
      await waitSettled(page);
      assert.ok(asked.includes('/columns/p1.place/0'));
      assert.deepEqual(problems, []);
      await page.close();
    } finally {
      child.kill('SIGINT');
    }
    assert.equal(await new Promise((done) => child.once('exit', done)), 0);
  });
});

describe('the copy that ships', () => {
  test('is what the sources build to', async () => {
    const { build } = await import('vite');
    const out = join(folder, 'dist');
    await build({ root: join(root, 'viewer'), logLevel: 'silent', build: { outDir: out } });
    const { readFileSync } = await import('node:fs');
    assert.ok(readFileSync(join(out, 'viewer.html')).equals(
      readFileSync(join(root, 'viewer/dist/viewer.html'))), 'run npm run build in viewer/');
  });
});
