#!/usr/bin/env python3
"""Draws what `stitched` holds against what it costs, for each shipped trace, as an SVG.

Usage: draw_tradeoff.py BUILD_DIR OUT.svg

Replays data/traces with pages of 2 to 64 MiB. A point is one page size; across: the whole driver
stall as a multiple of expandable's on the same trace (the cost model, lag 5 ms); up: reserved peak
over live peak.
"""
import glob
import json
import math
import subprocess
import sys
from xml.sax.saxutils import escape

from picture import opening

PAGES = [2, 4, 8, 16, 32, 64]
DEFAULT = 16
COLUMNS, WIDTH, HEIGHT, GAP, LEFT, TOP = 3, 250, 190, 60, 60, 70
STALL, RATIO = (0.5, 32), (1.0, 1.16)  # the ranges of the axes


def replay(build, policy, page):
    command = [f"{build}/tenon", "replay", *sorted(glob.glob("data/traces/*.csv.zst")), "--policy",
               policy, "--passes", "0", "--json", "--page", f"{page}MiB"]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return {r["trace"]: (r["driver_stall_us"], r["reserved_peak_bytes"] / r["live_peak_bytes"])
            for r in rows}


def text(x, y, words, size=11, anchor="middle", colour="#374151"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
            f'fill="{colour}">{escape(words)}</text>')


def panel(left, top, trace, points):
    def x(stall):
        return left + WIDTH * math.log(stall / STALL[0]) / math.log(STALL[1] / STALL[0])

    def y(ratio):
        return top + HEIGHT * (RATIO[1] - min(ratio, RATIO[1])) / (RATIO[1] - RATIO[0])

    out = [f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" '
           'stroke="#9ca3af"/>', text(left + WIDTH / 2, top - 8, trace, 13, colour="#111827")]
    for stall in (0.5, 1, 2, 4, 8, 16, 32):
        out.append(text(x(stall), top + HEIGHT + 14, f"{stall:g}×", 10))
        look = 'stroke="#fca5a5"' if stall == 2 else 'class="grid" stroke="#f3f4f6"'
        out.append(f'<line x1="{x(stall):.1f}" y1="{top}" x2="{x(stall):.1f}" '
                   f'y2="{top + HEIGHT}" {look}/>')
    for ratio in (1.0, 1.05, 1.1, 1.15):
        out.append(text(left - 6, y(ratio) + 4, f"{ratio:.2f}", 10, "end"))
        out.append(f'<line x1="{left}" y1="{y(ratio):.1f}" x2="{left + WIDTH}" '
                   f'y2="{y(ratio):.1f}" class="grid" stroke="#f3f4f6"/>')
    line = " ".join(f"{x(stall):.1f},{y(ratio):.1f}" for _, stall, ratio in points)
    out.append(f'<polyline points="{line}" fill="none" stroke="#047857" stroke-width="1.5"/>')
    for page, stall, ratio in points:
        out.append(f'<circle cx="{x(stall):.1f}" cy="{y(ratio):.1f}" '
                   f'r="{5 if page == DEFAULT else 3}" fill="#047857"/>')
        out.append(text(x(stall) + (9 if page == DEFAULT else 0), y(ratio) - 8, str(page), 10))
    return out


def main(build, target):
    expandable = replay(build, "expandable", DEFAULT)
    stitched = {page: replay(build, "stitched", page) for page in PAGES}
    traces = sorted(expandable)
    rows = -(-len(traces) // COLUMNS)
    width = LEFT + COLUMNS * (WIDTH + GAP)
    height = TOP + rows * (HEIGHT + GAP)
    out = [*opening(width, height),
           text(LEFT, 22, "stitched: reserved peak / live peak (up) against driver stall as a "
                "multiple of expandable's (across)", 14, "start", "#111827"),
           text(LEFT, 40, f"A point is a page size in MiB; the large one, {DEFAULT}, is the default. "
                "The red line: twice expandable's stall.", 11, "start")]
    for i, trace in enumerate(traces):
        points = [(page, stitched[page][trace][0] / expandable[trace][0], stitched[page][trace][1])
                  for page in PAGES]
        out += panel(LEFT + i % COLUMNS * (WIDTH + GAP), TOP + i // COLUMNS * (HEIGHT + GAP), trace,
                     points)
        print(f"{trace:22}" + "".join(f"  {page}: {ratio:.3f} {stall:.1f}x"
                                      for page, stall, ratio in points))
    out.append("</svg>")
    with open(target, "w") as f:
        f.write("\n".join(out) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
