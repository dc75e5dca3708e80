"""Seconds of communication in a step by the number of ranks, as the α–β model has them, as an SVG:
docs/ranks.svg, which scripts/results.py draws from the record `ranks`.
"""
import math
import re

from picture import opening

COLOURS = ("#047857", "#ca8a04", "#c2410c")  # by model
DASHES = {"0": "", "3": ' stroke-dasharray="6 4"'}
PANELS = {"links": "links of 100 Mbit/s, TCP", "memory": "memory of one machine"}
LEFT, TOP, WIDTH, HEIGHT, GAP = 60, 110, 330, 240, 80
MOST_RANKS = 4096


def curves(output):
    """(panel, model, shard) -> [(ranks, seconds)], without one rank, which sends nothing."""
    found = {}
    for line in output:
        row = re.match(r"  (\w+) (.*), --shard (\d): (1:.*)", line)
        if row:
            points = [tuple(map(float, pair.split(":"))) for pair in row[4].split()]
            found[row[1], row[2], row[3]] = [point for point in points if point[0] > 1]
    return found


def constants(output, way):
    row = next(re.match(rf"  openmpi +{way} +alpha ([\d.]+) us, 1/beta ([\d.]+) MB/s", line)
               for line in output if re.match(rf"  openmpi +{way} +alpha", line))
    return f"α = {row[1]} µs, 1/β = {row[2]} MB/s"


def panel(out, left, title, constant, lines):
    values = [seconds for rows in lines.values() for _, seconds in rows]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

    def height_of(seconds):
        return TOP + HEIGHT * (1 - (math.log10(seconds) - low) / (high - low))

    def place_of(ranks):
        return left + WIDTH * (math.log2(ranks) - 1) / (math.log2(MOST_RANKS) - 1)

    out.append(f'<text x="{left}" y="{TOP - 28}" font-size="12">{title}: {constant}</text>')
    out.append(f'<text x="{left}" y="{TOP - 12}">seconds of communication in a step</text>')
    for exponent in range(low, high + 1):
        y = height_of(10 ** exponent)
        out.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + WIDTH}" y2="{y:.1f}" class="grid" stroke="#e5e7eb"/>')
        out.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{10.0 ** exponent:,g}</text>')
    for ranks in (2, 8, 32, 128, 512, MOST_RANKS):
        out.append(f'<text x="{place_of(ranks):.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{ranks:,}</text>')
    models = list(dict.fromkeys(model for model, _ in lines))
    for (model, shard), rows in lines.items():
        way = " ".join(f"{place_of(ranks):.1f},{height_of(seconds):.1f}" for ranks, seconds in rows)
        out.append(f'<polyline points="{way}" fill="none" stroke="{COLOURS[models.index(model)]}" '
                   f'stroke-width="2"{DASHES[shard]}/>')
    out.append(f'<text x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 36}" text-anchor="middle">ranks</text>')


def drawn(output):
    """The picture of a record's output."""
    found = curves(output)
    width, height = LEFT + 2 * WIDTH + GAP + 30, TOP + HEIGHT + 70
    out = opening(width, height, 11)
    for i, model in enumerate(dict.fromkeys(model for _, model, _ in found)):
        x = LEFT + i * 200
        out.append(f'<rect x="{x}" y="18" width="12" height="12" fill="{COLOURS[i]}"/>')
        out.append(f'<text x="{x + 17}" y="28">{model}</text>')
    for i, (shard, dash) in enumerate(DASHES.items()):
        x = LEFT + i * 130
        out.append(f'<line x1="{x}" y1="48" x2="{x + 30}" y2="48" stroke="#6b7280" stroke-width="2"{dash}/>')
        out.append(f'<text x="{x + 36}" y="52">--shard {shard}</text>')
    for i, (way, title) in enumerate(PANELS.items()):
        panel(out, LEFT + i * (WIDTH + GAP), title, constants(output, way),
              {key[1:]: rows for key, rows in found.items() if key[0] == way})
    out.append(f'<text x="{LEFT}" y="{height - 8}">A model, not a measurement: constants of Open MPI between 2 ranks; '
               'computing, which hides a part, is left out.</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"
