// The style sheet of reports. Colours are those of Okabe and Ito.
#pragma once

namespace tenon {

inline constexpr const char* kReportStyle = R"(
:root { --paper: #fff; --panel: #f5f6f8; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de;
  --accent: #0b5cad; --alarm: #b3261e; --alarm-paper: #fdeceb; color-scheme: light dark;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --panel: #1d2126; --ink: #e8eaed;
  --soft: #a2abb5; --line: #383f47; --accent: #7fb8f0; --alarm: #ff8a80; --alarm-paper: #3a1d1b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1100px; padding: 16px 20px 60px; background: var(--paper);
  color: var(--ink); overflow-wrap: anywhere; }
h1 { font-size: 22px; margin: 0; }
h2 { font-size: 18px; margin: 30px 0 8px; border-top: 1px solid var(--line); padding-top: 14px; }
h3 { font-size: 15px; margin: 16px 0 4px; }
p { margin: 6px 0; max-width: 80ch; }
.lead { font-size: 19px; }
.soft, caption { color: var(--soft); }
.alarm { background: var(--alarm-paper); border-left: 4px solid var(--alarm); padding: 8px 12px;
  border-radius: 4px; }
nav a { color: var(--accent); margin-right: 14px; }
a:focus-visible, summary:focus-visible, .scroll:focus-visible { outline: 2px solid var(--accent);
  outline-offset: 2px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding: 6px 0; }
th, td { text-align: right; padding: 4px 10px; border-bottom: 1px solid var(--line);
  font-size: 14px; vertical-align: top; white-space: nowrap; }
th { color: var(--soft); }
tbody th { color: var(--ink); font-weight: 600; }
th:first-child, td:first-child, .text { text-align: left; white-space: normal; min-width: 9em; }
details { margin: 6px 0; }
summary { cursor: pointer; color: var(--accent); }
pre, ol.stack { font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre-wrap; }
pre { background: var(--panel); padding: 10px 12px; border-radius: 6px; overflow-x: auto; }
svg.picture { width: 100%; height: auto; display: block; margin: 6px 0; }
svg.small { width: 160px; height: 36px; vertical-align: middle; }
svg text { fill: var(--soft); font-size: 12px; }
svg .grid { stroke: var(--soft); stroke-opacity: .22; }
svg .failed { stroke: var(--alarm); stroke-width: 2; }
svg .limit { stroke: var(--alarm); }
svg text.limit { fill: var(--alarm); stroke: none; }
svg .outline { fill: var(--soft); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: 2px 16px; margin: 6px 0;
  padding: 0; }
.swatch { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 6px; }
.c0 { fill: #e69f00; background: #e69f00; } .c1 { fill: #56b4e9; background: #56b4e9; }
.c2 { fill: #009e73; background: #009e73; } .c3 { fill: #0072b2; background: #0072b2; }
.c4 { fill: #d55e00; background: #d55e00; } .c5 { fill: #f0e442; background: #f0e442; }
.c6 { fill: #7f5ab6; background: #7f5ab6; } .c7 { fill: #8c6d4f; background: #8c6d4f; }
.c8 { fill: #cc79a7; background: #cc79a7; } .c9 { fill: #8c959f; background: #8c959f; }
@media (max-width: 640px) { body { padding: 12px; } th, td { padding: 4px 5px; font-size: 13px; }
  svg text { font-size: 20px; } }
@media print { body { max-width: none; background: #fff; } nav { display: none; }
  .scroll { overflow: visible; } tr, li, svg, pre { break-inside: avoid; }
  h2, h3, caption { break-after: avoid; } }
@media (forced-colors: active) { .swatch, svg polygon { forced-color-adjust: none; } }
)";

}  // namespace tenon
