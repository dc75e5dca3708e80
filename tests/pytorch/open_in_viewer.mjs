// Opens snapshots in PyTorch's own viewer, over a page without a screen, and looks at everything:
//
//     node open_in_viewer.mjs MemoryViz.js FOLDER_WITH_NODE_MODULES SNAPSHOT...
//
// Every view of every device; in "Allocator State History" every event, from the last to the first,
// since the viewer computes each state from the end. Prints a line for each snapshot; exits with 1
// when the viewer throws, or shows more allocated than reserved.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const [viewer, packages, ...snapshots] = process.argv.slice(2);
const require = createRequire(path.join(path.resolve(packages), "package.json"));
const esbuild = require("esbuild");
const { JSDOM, VirtualConsole } = require("jsdom");

// The viewer loads d3 from the network; the same versions from npm stand in, bundled with it.
const source = fs.readFileSync(viewer, "utf8")
  .replace(/https:\/\/cdn\.skypack\.dev\/(d3[a-z-]*)@\d+/g, "$1");
const bundle = esbuild.buildSync({
  stdin: { contents: source, resolveDir: path.resolve(packages), loader: "js" },
  bundle: true, write: false, format: "iife", globalName: "MemoryViz", logLevel: "error",
}).outputFiles[0].text;

function openPage() {
  const errors = [];
  const log = new VirtualConsole();
  log.on("jsdomError", error => errors.push(error.detail ?? error));
  const page = new JSDOM("<!DOCTYPE html><html><head></head><body></body></html>",
                         { runScripts: "outside-only", pretendToBeVisual: true,
                           virtualConsole: log });
  page.window.Element.prototype.scrollIntoViewIfNeeded = () => {};
  page.window.TextDecoder = TextDecoder;
  page.window.eval(`${bundle}\nwindow.MemoryViz = MemoryViz;`);
  return { window: page.window, errors };
}

const nextFrame = window => new Promise(done => window.requestAnimationFrame(() => done()));

function bytesIn(text) {
  const shown = /\((?:[^(]*\((\d+) bytes\)) allocated \/ (?:[^(]*\((\d+) bytes\)) reserved\)/;
  const figures = shown.exec(text);
  return figures && figures.slice(1).map(Number);
}

// Selects the events one after the other, as a reader does with the up arrow.
async function walkBack(window, errors) {
  await nextFrame(window);
  await nextFrame(window);
  const events = window.document.querySelectorAll("pre").length - 1;
  let looked = 0;
  for (let at = events - 1; at >= 0 && errors.length === 0; --at) {
    const shown = window.document.querySelector("pre").textContent;
    const figures = bytesIn(shown);
    if (!figures) throw new Error(`event ${at}: no figures shown: ${shown.slice(0, 200)}`);
    const [allocated, reserved] = figures;
    if (allocated > reserved) throw new Error(`event ${at}: ${allocated} allocated of ${reserved}`);
    ++looked;
    const up = new window.KeyboardEvent("keydown", { key: "ArrowUp", bubbles: true });
    window.document.body.dispatchEvent(up);
  }
  return looked;
}

async function open(file) {
  const { window, errors } = openPage();
  const base64 = fs.readFileSync(file).toString("base64");
  const kinds = [...window.document.querySelectorAll("select")[1].options].map(o => o.text);
  let looked = 0;
  for (const kind of kinds) {
    const page = kind === kinds[0] ? { window, errors } : openPage();
    page.window.MemoryViz.add_local_files([{ name: path.basename(file), base64 }], kind);
    if (kind === "Allocator State History") looked = await walkBack(page.window, page.errors);
    await nextFrame(page.window);
    if (page.errors.length > 0)
      throw new Error(`${kind}: ${page.errors[0].stack ?? page.errors[0]}`);
    const shown = [...page.window.document.querySelectorAll("svg rect, svg polygon, pre")];
    if (!shown.some(each => each.tagName !== "PRE" || each.textContent !== ""))
      throw new Error(`${kind}: nothing is shown`);
    page.window.close();
  }
  return `${kinds.length} views, ${looked} states`;
}

let failed = 0;
for (const file of snapshots) {
  try {
    console.log(`passed  ${path.basename(file)}: ${await open(file)}`);
  } catch (error) {
    ++failed;
    console.log(`FAILED  ${path.basename(file)}: ${error.stack ?? error}`);
  }
}
process.exit(failed === 0 ? 0 : 1);
