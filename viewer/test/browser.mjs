// Chromium as it is installed, and what tests need of it.
import { existsSync } from 'node:fs';
import { chromium } from 'playwright-core';

export async function launch() {
  const executablePath = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser',
                          '/usr/bin/google-chrome'].find((path) => path && existsSync(path));
  if (!executablePath) throw new Error('there is no Chromium here: set CHROMIUM to its path');
  // As root, in containers, its own sandbox cannot start.
  const args = process.getuid?.() === 0 ? ['--no-sandbox'] : [];
  return chromium.launch({ executablePath, args });
}

export async function waitReady(page) {
  await page.waitForFunction(() => document.documentElement.dataset.ready === 'yes' ||
    document.querySelector('.failure'), null, { timeout: 60_000 });
  const failure = await page.evaluate(() => document.querySelector('.failure')?.textContent);
  if (failure) throw new Error(failure);
}

// Waits until plot and map show what was asked for last.
export async function waitSettled(page) {
  await page.waitForFunction(() => window.tenon.plot.settled && window.tenon.map.settled);
  await page.waitForTimeout(220);
  await page.waitForFunction(() => window.tenon.plot.settled && window.tenon.map.settled);
}
