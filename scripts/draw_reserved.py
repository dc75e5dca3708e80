#!/usr/bin/env python3
"""What each policy held, relative to the live peak, as an SVG: docs/reserved.svg, which
scripts/results.py draws from the record `replay`.
"""
import re
from xml.sax.saxutils import escape

from picture import opening

SHOWN = ["caching", "expandable", "stitched"]
COLOURS = {"caching": "#c2410c", "expandable": "#ca8a04", "stitched": "#047857"}
NAMES = {"caching": "caching (PyTorch's default)",
         "expandable": "expandable (PyTorch's expandable_segments)", "stitched": "stitched (Tenon)"}
LEFT, TOP, ROW, BAR, WIDTH, LIMIT = 180, 64, 62, 14, 560, 2.0


def ratios(output):
    """(trace, policy) -> reserved peak over live peak, from what `tenon replay` printed."""
    found, trace = {}, None
    for line in output:
        if title := re.match(r"(\S+): [\d,]+ events", line):
            trace = title[1]
        elif line.startswith("geometric means"):
            break
        elif (row := line.split()) and row[0] in SHOWN:
            found[trace, row[0]] = float(row[3])
    return found


def drawn(output):
    """The picture of a record's output."""
    ratio = ratios(output)
    traces = sorted({trace for trace, _ in ratio})
    height = TOP + ROW * len(traces) + 60
    out = [*opening(LEFT + WIDTH + 90, height, 13),
           f'<text x="{LEFT}" y="22" font-size="15" font-weight="600">'
           'Memory held beyond what was live (reserved peak / live peak)</text>']
    for i, policy in enumerate(SHOWN):
        x = LEFT + (0, 185, 478)[i]
        out.append(f'<rect x="{x}" y="34" width="12" height="12" fill="{COLOURS[policy]}"/>')
        out.append(f'<text x="{x + 17}" y="44" font-size="11">{escape(NAMES[policy])}</text>')
    for tenths in range(10, 21, 2):
        x = LEFT + (tenths - 10) / 10 * WIDTH
        out.append(f'<line x1="{x:.0f}" y1="{TOP}" x2="{x:.0f}" y2="{height - 52}" class="grid" '
                   f'stroke="{"#9ca3af" if tenths == 10 else "#e5e7eb"}"/>')
        out.append(f'<text x="{x:.0f}" y="{height - 36}" font-size="11" text-anchor="middle">'
                   f'{tenths / 10:.1f}</text>')
    for t, trace in enumerate(traces):
        y = TOP + t * ROW
        out.append(f'<text x="{LEFT - 10}" y="{y + 30}" text-anchor="end">{escape(trace)}</text>')
        for i, policy in enumerate(SHOWN):
            value = ratio[(trace, policy)]
            length = max(1.0, min(value - 1, LIMIT - 1) * WIDTH)
            top = y + 6 + i * (BAR + 2)
            cut = " →" if value > LIMIT else ""
            out.append(f'<rect x="{LEFT}" y="{top}" width="{length:.1f}" height="{BAR}" '
                       f'fill="{COLOURS[policy]}"/>')
            out.append(f'<text x="{LEFT + length + 5:.1f}" y="{top + 11}" font-size="11">'
                       f'{value:.3f}{cut}</text>')
    out.append(f'<text x="{LEFT}" y="{height - 14}" font-size="12" fill="#374151">'
               '1.0: the live peak; no allocator can hold less. Bars end at 2.0. Simulated device, lag 5 ms, no limit.</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"
