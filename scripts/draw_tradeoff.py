#!/usr/bin/env python3
"""What `stitched` holds against what it costs, by page size, for each shipped trace.

Usage: draw_tradeoff.py BUILD_DIR

Replays data/traces with pages of 2 to 64 MiB, at a lag of 5 ms. Prints reserved peak / live peak and
driver stall / expandable's on the same trace (the cost model). scripts/results.py draws
docs/stitched_tradeoff.svg from the record `tradeoff` of this output.
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
COLUMNS, WIDTH, HEIGHT, GAP, LEFT, TOP = 3, 250, 190, 60, 60, 88
STALL, RATIO = (0.25, 32), (1.0, 1.16)  # the ranges of the axes


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
    for stall in (0.25, 0.5, 1, 2, 4, 8, 16, 32):
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


def points_of(output):
    """trace -> (page size in MiB, stall, ratio), from what main() printed."""
    found = {}
    for line in output[1:]:
        trace, page, ratio, stall = line.split()
        found.setdefault(trace, []).append((int(page), float(stall), float(ratio)))
    return found


def drawn(output):
    """The picture of a record's output."""
    found = points_of(output)
    rows = -(-len(found) // COLUMNS)
    out = [*opening(LEFT + COLUMNS * (WIDTH + GAP), TOP + rows * (HEIGHT + GAP)),
           text(LEFT, 22, "stitched: reserved peak / live peak (up) against driver stall as a "
                "multiple of expandable's (across)", 14, "start", "#111827"),
           text(LEFT, 40, f"A point is a page size in MiB; the large one, {DEFAULT}, is the default. "
                "The red line: twice expandable's stall.", 11, "start"),
           text(LEFT, 56, "Simulated device without a capacity limit, cost model of one H200, lag 5 ms. "
                "1.0: the live peak.", 11, "start")]
    for i, (trace, points) in enumerate(found.items()):
        out += panel(LEFT + i % COLUMNS * (WIDTH + GAP), TOP + i // COLUMNS * (HEIGHT + GAP), trace,
                     points)
    return "\n".join([*out, "</svg>"]) + "\n"


def main(build):
    expandable = replay(build, "expandable", DEFAULT)
    stitched = {page: replay(build, "stitched", page) for page in PAGES}
    print("  trace                 pages of, MiB  reserved/live  stall/expandable's")
    for trace in sorted(expandable):
        for page in PAGES:
            stall, ratio = stitched[page][trace]
            print(f"  {trace:20}  {page:13}  {ratio:13.4f}  {stall / expandable[trace][0]:18.2f}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
