"""What the pictures of docs/ have in common."""

# In the dark the ground, words and grid change; what the colours of data mean does not.
_DARK = ("<style>@media (prefers-color-scheme: dark) {"
         " .ground { fill: #0d1117 } text { fill: #d1d5db } .grid { stroke: #30363d } }</style>")


def opening(width, height, font_size=None):
    """The first elements of an SVG of width x height pixels: the font, the style, the ground."""
    size = f' font-size="{font_size}"' if font_size else ""
    return [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'font-family="system-ui, sans-serif"{size}>',
            _DARK, '<rect class="ground" width="100%" height="100%" fill="#ffffff"/>']
