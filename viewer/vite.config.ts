// Builds dist/viewer.html: one file with script, style and worker in it.
import { readdirSync, readFileSync } from 'node:fs';
import { defineConfig, type Plugin } from 'vite';

// A number for the sources, FNV-1a over names and contents in order: it stands in the page, so that
// a test in C++ sees without Node whether the page that ships was built from what is here.
function stamp(): string {
  const under = (folder: string): string[] =>
    readdirSync(folder, { withFileTypes: true }).flatMap((entry) =>
      entry.isDirectory() ? under(`${folder}/${entry.name}`) : [`${folder}/${entry.name}`]);
  const files = [...under('src'), 'index.html', 'package-lock.json', 'tsconfig.json', 'vite.config.ts'];
  // In two halves of 32 bits, since numbers here are doubles.
  let [high, low] = [0xcbf29ce4, 0x84222325];
  for (const file of files.sort()) {
    for (const byte of Buffer.concat([Buffer.from(`${file}\n`), readFileSync(file)])) {
      low = (low ^ byte) >>> 0;
      // times 0x100000001b3
      const product = low * 0x1b3;
      high = (Math.imul(high, 0x1b3) + Math.floor(product / 2 ** 32) + ((low << 8) >>> 0)) >>> 0;
      low = product % 2 ** 32;
    }
  }
  return (high.toString(16).padStart(8, '0') + low.toString(16).padStart(8, '0'));
}

// Puts the script and the style sheet into the page: the style where its link was, the script where
// the page says, so that it runs as soon as the parser gets there, before the data behind it.
function oneFile(): Plugin {
  return {
    name: 'one-file',
    enforce: 'post',
    generateBundle(_options, bundle) {
      const page = bundle['index.html'];
      if (page?.type !== 'asset') throw new Error('there is no index.html');
      let html = String(page.source).replace('%TENON_SOURCES%', stamp());
      for (const [name, item] of Object.entries(bundle)) {
        if (item.type === 'chunk') {
          const code = item.code.replace(/<\/(script)/gi, '<\\/$1').replace(/<!--/g, '<\\!--');
          html = html.replace(/\s*<script type="module"[^>]*><\/script>/, '');
          html = html.replace('<!--%APP%-->', () => `<script>${code.trim()}</script>`);
          delete bundle[name];
        } else if (name.endsWith('.css')) {
          const css = String(item.source).trim();
          html = html.replace(/<link rel="stylesheet"[^>]*>/, () => `<style>${css}</style>`);
          delete bundle[name];
        }
      }
      if (/<script[^>]* src=|<link[^>]* href="\.?\//.test(html)) throw new Error('not one file');
      page.source = html;
      page.fileName = 'viewer.html';
    },
  };
}

export default defineConfig({
  base: './',
  build: {
    target: 'es2022',
    outDir: 'dist',
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 100_000_000,
    rollupOptions: { output: { format: 'iife' } },
  },
  worker: { format: 'iife' },
  plugins: [oneFile()],
});
