"""The layers of src/tenon and the libraries made of them, as an SVG: docs/house.svg, which
scripts/results.py draws from the table of layers in docs/architecture.md.
"""
import re
from xml.sax.saxutils import escape

from picture import opening

# Library, its layers from the lowest, column of each: -1 is the whole width.
LIBRARIES = [("tenon::memory", ["base", "device", "heap", "memory"], -1, "#0072b2"),
             ("tenon::lab", ["trace", "lab"], 0, "#e69f00"),
             ("tenon::tensor", ["tensor", "ops", "autograd", "nn"], 1, "#009e73"),
             ("the command", ["distributed"], 1, "#6b7280")]
LEFT, WIDTH, ROW, GAP, TOP = 130, 700, 40, 6, 36
MOST = {-1: 92, 0: 50, 1: 50}  # characters of a box


def owned(table):
    """layer -> what it owns, from the rows of the table."""
    rows = re.findall(r"^\| `(\w+)/` \| ([^|]+) \|", table, re.M)
    return {layer: re.sub(r"`| \([^)]*\)", "", text) for layer, text in rows}


def shortened(text, most):
    parts, line = re.split(r"[,;] ", text), ""
    for part in parts:
        if len(line) + len(part) + 2 > most:
            break
        line += (", " if line else "") + part
    return line


def drawn(table):
    """The picture of a page with the table of layers."""
    owns = owned(table)
    columns = {-1: 0, 0: len(LIBRARIES[0][1]), 1: len(LIBRARIES[0][1])}
    rows = len(LIBRARIES[0][1]) + sum(len(layers) for _, layers, column, _ in LIBRARIES if column == 1)
    bottom = TOP + rows * (ROW + GAP)
    out = opening(LEFT + WIDTH + 130, bottom + 34, 12)
    half = (WIDTH - GAP) / 2
    for library, layers, column, colour in LIBRARIES:
        x, width = (LEFT, WIDTH) if column < 0 else (LEFT + column * (half + GAP), half)
        for layer in layers:
            y = bottom - (columns[column] + 1) * (ROW + GAP)
            columns[column] += 1
            out.append(f'<rect x="{x}" y="{y}" width="{width}" height="{ROW}" rx="4" fill="{colour}" '
                       f'fill-opacity="0.18" stroke="{colour}"/>')
            out.append(f'<text x="{x + 10}" y="{y + 16}" font-weight="600">{layer}</text>')
            out.append(f'<text x="{x + 10}" y="{y + 32}" font-size="11">'
                       f'{escape(shortened(owns[layer], MOST[column]))}</text>')
        end = column != 0
        out.append(f'<text x="{LEFT + WIDTH + 10 if end else LEFT - 10}" y="{y + 24}" font-weight="600" '
                   f'fill="{colour}" text-anchor="{"start" if end else "end"}">{library}</text>')
    out.append(f'<text x="{LEFT}" y="{bottom + 22}" font-size="11">A layer includes only layers below it. '
               'The two columns do not include each other.</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"
