// Takes docs/view.png and docs/view-dark.png: a shipped snapshot in the viewer.
//   node test/picture.mjs PAGE.html OUT.png light|dark     (scripts/view_picture.sh does all of it)
import { pathToFileURL } from 'node:url';
import { launch, waitReady, waitSettled } from './browser.mjs';

const [file, out, colorScheme] = process.argv.slice(2);
const browser = await launch();
const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, colorScheme });
await page.goto(pathToFileURL(file).href);
await waitReady(page);
await page.locator('#axis').selectOption('event');
await waitSettled(page);
await page.evaluate(() => document.activeElement.blur());
// Down to the end of the plot.
const height = await page.locator('#minimap').evaluate((e) => Math.ceil(
  e.getBoundingClientRect().bottom + scrollY + 8));
await page.screenshot({ path: out, fullPage: true, clip: { x: 0, y: 0, width: 1280, height } });
await browser.close();
