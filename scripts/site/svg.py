"""Small drawings as SVG inside a page: they take the page's colors, light or dark, and its font."""

from collections.abc import Iterable, Sequence
from html import escape

WIDTH, LEFT, RIGHT, ROW = 360, 128, 296, 17  # px of a panel; text stays readable at the width of a phone


def short(value: float) -> str:
    """Three digits."""
    return f"{value:.3g}".replace("-", "−").replace("e−0", "e−").replace("e+0", "e").replace("e+", "e")


def panel(height: float, title: str, inside: Iterable[str], *, summary: str) -> str:
    """One drawing with its title, and what it says for those who do not see it."""
    head = f'<text class="title" x="0" y="14">{escape(title)}</text>'
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(summary)}">{head}{"".join(inside)}</svg>'
    )


def panels(drawn: Sequence[str]) -> str:
    return f'<div class="panels">{"".join(drawn)}</div>'


def label(x: float, y: float, text: str, *, anchor: str = "start", kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(text)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def dot(x: float, y: float, kind: str, *, radius: float = 4) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" class="{kind}"/>'


def moves(title: str, base: float, null: float | None, values: dict[str, float | None], *, same) -> str:
    """A line per change: the value before (the upright line), and after (the dot; open where it is the same).

    Args:
        title: Of the panel.
        base: The value before.
        null: The null value, a dashed line.
        values: What was changed → the value after, or None where there is none.
        same: Whether a value is that of before.
    """
    known = [value for value in (base, null, *values.values()) if value is not None]
    low, high = min(known), max(known)
    span = (high - low) or 1.0

    def x_of(value: float) -> float:
        return LEFT + (RIGHT - LEFT) * (value - low) / span

    bottom = 24 + ROW * (len(values) + 1)
    drawn = [line(x_of(base), 22, x_of(base), bottom, "base")]
    if null is not None:
        drawn.append(line(x_of(null), 22, x_of(null), bottom, "axis"))
    for k, (name, value) in enumerate({"as drawn": base, **values}.items()):
        y = 24 + ROW * (k + 0.5)
        drawn.append(label(0, y + 4, name))
        if value is None:
            drawn.append(label(WIDTH, y + 4, "none", anchor="end", kind="quiet"))
            continue
        still = same(value)
        if not still:
            drawn.append(line(x_of(base), y, x_of(value), y, "move"))
        drawn.append(dot(x_of(value), y, "still" if still else "moved"))
        drawn.append(label(WIDTH, y + 4, short(value), anchor="end", kind="quiet" if still else ""))
    summary = ", ".join(f"{name} {'not defined' if value is None else short(value)}" for name, value in values.items())
    note = f"line: as drawn{', dashed: null value ' + short(null) if null is not None else ''}"
    drawn.append(label(LEFT, bottom + 14, note, kind="quiet"))
    return panel(bottom + 20, title, drawn, summary=f"{title}: as drawn {short(base)}; {summary}.")
