"""Dark mode of figures: a style sheet within the SVG that applies where the reader's screen is dark."""

import colorsys
import re

from matplotlib.colors import to_hex, to_rgb

from clip_geometry.display.couples import AS_DRAWN

PAPER, INK = "#1b1e23", "#e3e5e8"  # what white and black become; template.css has the same card
CONTRAST = 4.5  # of a color to the dark paper, that of WCAG AA for text
GREY = 0.12  # chroma, up to which a color is a grey: an ink, a line of the grid, white

_PAINT = re.compile(r"(fill|stroke): (#[0-9a-f]{6})")


def with_dark_mode(svg: str) -> str:
    """The SVG with a style sheet for dark screens: greys are inverted, and colors too dark to be seen are lightened.

    Colors within bitmaps stay, and so do those of texts whose gid begins with AS_DRAWN.
    """
    rules = {}
    for kind, color in sorted(set(_PAINT.findall(svg))):
        if (dark := dark_color(color)) != color:
            chosen = f'[style*="{kind}: {color}"]:not([id^="{AS_DRAWN}"] *)'
            rules.setdefault(f"{kind}:{dark}!important", []).append(chosen)
    sheet = "".join(f"{','.join(chosen)}{{{paint}}}" for paint, chosen in rules.items())
    # what has no paint of its own is black
    sheet = f"@media screen and (prefers-color-scheme:dark){{svg{{fill:{INK}}}{sheet}}}"
    head, defs, rest = svg.partition("<defs>")
    return f"{head}<style>{sheet}</style>{defs}{rest}" if defs else svg


def dark_color(color: str) -> str:
    """The color for a dark screen of `#rrggbb`; the same where it can be seen there."""
    red, green, blue = to_rgb(color)
    hue, lightness, saturation = colorsys.rgb_to_hls(red, green, blue)
    if max(red, green, blue) - min(red, green, blue) <= GREY:
        dark, light = (to_rgb(of)[0] for of in (PAPER, INK))
        inverted = colorsys.hls_to_rgb(hue, light + (dark - light) * lightness, min(saturation, 0.12))
        return to_hex(inverted) if lightness < 1 else PAPER
    shown, share = color, 0.0
    while contrast(shown) < CONTRAST:  # mixed with white, which keeps the hue
        share += 0.02
        shown = to_hex((red + share * (1 - red), green + share * (1 - green), blue + share * (1 - blue)))
    return shown


def contrast(color: str, paper: str = PAPER) -> float:
    """Contrast of two colors by WCAG 2, from 1 to 21."""
    luminances = []
    for each in (color, paper):
        red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in to_rgb(each))
        luminances.append(0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
    return max(luminances) / min(luminances)
