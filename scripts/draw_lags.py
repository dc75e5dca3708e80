"""How `stitched` trades memory against driver time as the device lags behind the host, as an SVG:
docs/stitched_by_lag.svg, which scripts/results.py draws from the record `generated`.
"""
import re

from draw_reserved import COLOURS
from picture import opening

GROUPS = {"shipped: 7 programs, unlimited memory": ("7 recorded programs", ""),
          "generated, seeds from 1,000 on (reported): 100 programs, unlimited memory":
              ("100 generated programs", ' stroke-dasharray="6 4"')}
# Title, number of the value in a point, ticks of the axis, policies.
PANELS = [("reserved peak / live peak", 0, (1.0, 1.02, 1.04, 1.06, 1.08, 1.1, 1.12),
           ["expandable", "stitched"]),
          ("driver stall / expandable's", 1, (0, 0.5, 1.0, 1.5, 2.0),
           ["caching", "expandable", "stitched"])]
LEFT, TOP, WIDTH, HEIGHT, GAP = 60, 90, 330, 220, 90


def points(output):
    """(group, policy) -> [(lag, (reserved, stall))], geometric means that `bench_generated` printed."""
    found, group = {}, None
    for line in output:
        if line and not line.startswith(" "):
            group = line if line in GROUPS else None
        row = re.match(r" +(\w+) +(\d+) ms ", line)
        if group and row and row[1] in COLOURS:
            numbers = [float(number) for number in re.findall(r"\d+\.\d+", line)]
            found.setdefault((group, row[1]), []).append((row[2], (numbers[0], numbers[-2])))
    return found


def panel(out, left, found, title, value, ticks, policies):
    def height_of(number):
        return TOP + HEIGHT * (1 - (number - ticks[0]) / (ticks[-1] - ticks[0]))
    out.append(f'<text x="{left}" y="{TOP - 14}" font-size="12">{title}, geometric mean</text>')
    for tick in ticks:
        y = height_of(tick)
        out.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + WIDTH}" y2="{y:.1f}" class="grid" stroke="#e5e7eb"/>')
        out.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:.2f}</text>')
    for (group, policy), rows in found.items():
        step = WIDTH / (len(rows) - 1)
        places = [(left + i * step, height_of(row[1][value])) for i, row in enumerate(rows)]
        if group == next(iter(GROUPS)) and policy == "stitched":
            for (x, _), (lag, _) in zip(places, rows):
                out.append(f'<text x="{x:.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{lag} ms</text>')
        if policy in policies:
            way = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            out.append(f'<polyline points="{way}" fill="none" stroke="{COLOURS[policy]}" '
                       f'stroke-width="2"{GROUPS[group][1]}/>')
    out.append(f'<text x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 36}" text-anchor="middle">lag of the device</text>')


def drawn(output):
    """The picture of a record's output."""
    found = points(output)
    width, height = LEFT + 2 * WIDTH + GAP + 30, TOP + HEIGHT + 66
    out = opening(width, height, 11)
    for i, policy in enumerate(COLOURS):
        out.append(f'<rect x="{LEFT + i * 110}" y="18" width="12" height="12" fill="{COLOURS[policy]}"/>')
        out.append(f'<text x="{LEFT + i * 110 + 17}" y="28">{policy}</text>')
    for i, (name, dash) in enumerate(GROUPS.values()):
        x = LEFT + 340 + i * 180
        out.append(f'<line x1="{x}" y1="24" x2="{x + 30}" y2="24" class="key" stroke="#6b7280" stroke-width="2"{dash}/>')
        out.append(f'<text x="{x + 36}" y="28">{name}</text>')
    for i, described in enumerate(PANELS):
        panel(out, LEFT + i * (WIDTH + GAP), found, *described)
    out.append(f'<text x="{LEFT}" y="{height - 8}">Simulated device without a capacity limit, cost model '
               'of one H200. 1.0 on the left: the live peak.</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"
