"""What maps do to the same pairs, all of it side by side: a line per map, a panel per number; and in sentences."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from clip_geometry.report.gallery import FigureEntry
from clip_geometry.report.numbers import as_number, brief, percent
from clip_geometry.report.style import COLOUR, MARKER, NEUTRAL, WIDTH, save_figure, styled

BOTH, SECOND = "#24292F", "#AA4499"  # of numbers of both modalities together, and of a second one in a panel
SHADE = "#F3F5F7"
GAP, SILHOUETTE, COSINE, ISOSCORE, ZERO_SHOT = (
    "modality_gap", "modality_silhouette", "average_cosine", "isoscore[unbiased]", "zero_shot.top_1",
)  # fmt: skip
MIXED = "retrieval[mixed]."
OWN = {modality: f"{MIXED}{modality}.same_modality_at_10" for modality in ("image", "text")}
FIRST = {"image": f"{MIXED}image_to_text.r_at_1", "text": f"{MIXED}text_to_image.r_at_1"}
CLOSED = 0.2  # of the gap as it comes, below which it counts as closed
OPENED = 0.2  # of the average cosine likewise
ISOTROPIC = 3.0  # times the IsoScore as it comes, from which on rows count as more isotropic

Row = Mapping[str, Any]
Key = tuple[str, str, str]  # measure, modality, classes


class Dots(NamedTuple):
    """A series of a panel."""

    key: Key
    name: str
    colour: str
    marker: str


class Panel(NamedTuple):
    """What a number is, in two lines, and its dots."""

    title: str
    dots: tuple[Dots, ...]
    whole: bool = True  # an axis from 0 to 1


def _each(measures: Mapping[str, str], name: str = "{}s") -> tuple[Dots, ...]:
    """Of images and of texts. measures: modality → measure; where both are of both modalities, the query differs."""
    same = len(set(measures.values())) == 1
    return tuple(
        Dots((measure, modality if same else "both", ""), name.format(modality), COLOUR[modality], MARKER[modality])
        for modality, measure in measures.items()
    )


def _both(measure: str) -> tuple[Dots, ...]:
    return (Dots((measure, "both", ""), "both", BOTH, "s"),)


PANELS = (
    Panel("modality\ngap", _both(GAP), whole=False),
    Panel("average\ncosine", _each({"image": COSINE, "text": COSINE})),
    Panel("IsoScore\n(unbiased)", _each({"image": ISOSCORE, "text": ISOSCORE})),
    Panel("one index: own\nmodality in top 10", _each(OWN)),
    Panel("one index: own\npartner first", _each(FIRST)),
    Panel(
        "zero-shot\naccuracy",
        (
            Dots((ZERO_SHOT, "both", "seen"), "seen classes", BOTH, "o"),
            Dots((ZERO_SHOT, "both", "held out"), "held-out classes", SECOND, "D"),
        ),
    ),
)


class Table:
    """Rows by their name in the table (a map, a twin) and by what they are of."""

    def __init__(self, rows: Sequence[Row]):
        self.names = list(dict.fromkeys(row["at"]["row"] for row in rows))
        self._rows = {(row["at"]["row"], *_key(row)): row for row in rows}

    def row(self, name: str, key: Key) -> Row | None:
        return self._rows.get((name, *key))

    def get(self, name: str, measure: str, modality: str = "both", classes: str = "") -> float | None:
        return as_number((self._rows.get((name, measure, modality, classes)) or {}).get("value"))


def _key(row: Row) -> Key:
    return row["measure"], row["at"].get("modality", "both"), row["at"].get("classes", "")


# --- the figure


def draw_before_after(
    rows: Sequence[Row], *, first: str, folder: str | Path, origin: str, prefix: str = ""
) -> list[FigureEntry]:
    """Draws the figure of these rows and saves it as PNG and SVG; none where no row has a number that it shows. first:
    the name of the pairs as they come."""
    table = Table(rows)
    panels = [panel for panel in PANELS if any(table.row(name, d.key) for name in table.names for d in panel.dots)]
    if not panels:
        return []
    name = f"{prefix}before_after"
    png, svg = save_figure(before_after_figure(table, first, panels), folder, name)
    caption = (
        f"Each line is the same pairs, each panel a number of them; dotted: “{first}”. In one index of images and "
        "texts: the share of the query's own modality among the ten rows nearest to it, and of queries whose own "
        f"partner is the nearest row. Dashed: what isotropic noise gives, and chance for the accuracy. {origin}"
    )
    return [FigureEntry(name, "What maps change and what they do not", caption, svg, png, wide=True)]


@styled
def before_after_figure(table: Table, first: str, panels: Sequence[Panel] = PANELS) -> Figure:
    """A line for each row of the table, a panel for each number; dotted: the value of the row called `first`."""
    names = table.names
    figure = Figure(figsize=(2.15 * WIDTH, 1.0 + 0.27 * len(names)), layout="constrained")
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, panel in zip(grid, panels, strict=True):
        _draw(axes, panel, table, first)
    grid[0].set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.45, -0.55))
    for axes in grid:
        axes.tick_params(axis="y", length=0)
        for spine in ("left", "bottom"):
            axes.spines[spine].set_visible(False)
    dots = {dot.name: dot for panel in panels for dot in panel.dots if dot.name != "both"}
    keys = [
        Line2D([], [], marker=dot.marker, color=dot.colour, markersize=4.5, ls="none", label=_legend(dot))
        for dot in dots.values()
    ]
    figure.legend(handles=keys, loc="outside lower right", ncols=4)
    return figure


def _legend(dot: Dots) -> str:
    return f"{dot.name}, or of an image query" if dot.name == "images" else (
        f"{dot.name}, or of a text query" if dot.name == "texts" else dot.name
    )  # fmt: skip


def _draw(axes: Axes, panel: Panel, table: Table, first: str) -> None:
    for place in range(0, len(table.names), 2):
        axes.axhspan(place - 0.5, place + 0.5, color=SHADE, linewidth=0, zorder=0)
    for number, dots in enumerate(panel.dots):
        found = [(k, row) for k, name in enumerate(table.names) if (row := table.row(name, dots.key))]
        known = [(k, row) for k, row in found if as_number(row.get("value")) is not None]
        shift = 0.22 * (number - (len(panel.dots) - 1) / 2)
        axes.errorbar(
            [row["value"] for _, row in known],
            [k + shift for k, _ in known],
            xerr=[row.get("standard_error") or 0 for _, row in known],
            fmt=dots.marker,
            markersize=4.2,
            color=dots.colour,
            elinewidth=1,
            gid=":".join((panel.title.replace("\n", " "), dots.name)),
            zorder=3,
        )
        if (plain := table.row(first, dots.key)) is not None and as_number(plain.get("value")) is not None:
            _reference(axes, plain, dots, noise=number == 0)
    axes.set_title(panel.title, fontsize=7.5)
    axes.grid(axis="y", visible=False)
    if panel.whole:
        axes.set_xlim(min(-0.06, axes.get_xlim()[0]), 1.06)
        axes.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
    else:
        axes.set_xlim(left=min(0, axes.get_xlim()[0]))
        axes.xaxis.set_major_locator(MaxNLocator(3))


def _reference(axes: Axes, plain: Row, dots: Dots, *, noise: bool) -> None:
    """The pairs as the model gives them, dotted; dashed: the null value."""
    axes.axvline(plain["value"], color=dots.colour, linewidth=0.9, linestyle=(0, (1, 1.5)), zorder=1)
    null = as_number(plain.get("null_value"))
    if null is not None and noise:
        axes.axvline(null, color=NEUTRAL, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)


# --- the sentences


def tell(rows: Sequence[Row], first: str, twins: Sequence[str] = ()) -> list[str]:
    """What the rows say of maps, beside the pairs as they come; first: the name of these. Nothing where they do not."""
    table = Table(rows)
    maps = [name for name in table.names if name != first and name not in twins]
    told = (
        _index(table, first, maps),
        _clusters(table, first),
        _mended(table, first, maps),
        _opened_cone(table, first, maps),
        _isotropic(table, first, maps),
        _accuracy(table, first, maps),
    )
    return [sentence for sentence in told if sentence]


def _index(table: Table, first: str, maps: Sequence[str]) -> str | None:
    """What an image query finds in one index of both, as it comes and after the map that closes the gap but leaves most
    images: a closed gap does not say what a query finds."""
    gap, share = table.get(first, GAP), table.get(first, OWN["image"])
    if share is None:
        return None
    found = f"Of the ten rows nearest to an image, {percent(share)} are images again, where an even mix has 50%"
    known = {name: table.get(name, OWN["image"]) for name in maps if gap and _closes(table.get(name, GAP), gap)}
    left = {name: value for name, value in known.items() if value is not None}
    if not left or gap is None:
        return f"{found}."
    worst = max(left, key=lambda name: left[name])
    after = table.get(worst, GAP)
    assert after is not None
    return (
        f"{found}; “{worst}” takes the modality gap from {brief(gap)} to {brief(after)}, and still "
        f"{percent(left[worst])} are images."
    )


def _closes(after: float | None, before: float) -> bool:
    return after is not None and after < CLOSED * before


def _clusters(table: Table, first: str) -> str | None:
    """The silhouette of the modalities beside what a query finds."""
    silhouette, share = table.get(first, SILHOUETTE), table.get(first, OWN["image"])
    if silhouette is None or share is None or silhouette > 0.1 or share < 0.6:
        return None
    return (
        f"The silhouette sees next to nothing of it: with the modality as label it is {brief(silhouette)}, as if "
        "images and texts were mixed."
    )


def _mended(table: Table, first: str, maps: Sequence[str]) -> str | None:
    """The map after which most images find their own text first, in an index of both."""
    before = table.get(first, FIRST["image"])
    known = {name: value for name in maps if (value := table.get(name, FIRST["image"])) is not None}
    if before is None or not known or max(known.values()) <= before:
        return None
    best = max(known, key=lambda name: known[name])
    return (
        f"What helps most is “{best}”: an image finds its own text first, before all images, in {percent(known[best])} "
        f"of cases instead of {percent(before)}{_shares(table, best)}."
    )


def _shares(table: Table, name: str) -> str:
    share = table.get(name, OWN["image"])
    return "" if share is None else f", and {percent(share)} of its ten nearest are images"


def _opened_cone(table: Table, first: str, maps: Sequence[str]) -> str | None:
    """Without its mean a set has no cone, and may be no more isotropic than before."""
    cosine, score = table.get(first, COSINE, "image"), table.get(first, ISOSCORE, "image")
    if cosine is None or score is None:
        return None
    for name in maps:
        after, scored = table.get(name, COSINE, "image"), table.get(name, ISOSCORE, "image")
        if after is not None and scored is not None and abs(after) < OPENED * cosine and scored < 1.5 * score:
            return (
                f"No cone is not yet isotropic: “{name}” takes the average cosine of images from {brief(cosine)} to "
                f"{brief(after)}, and leaves their IsoScore at {brief(scored)} ({brief(score)} before)."
            )
    return None


def _isotropic(table: Table, first: str, maps: Sequence[str]) -> str | None:
    """What becomes of the accuracy where the rows become more isotropic."""
    score, right = table.get(first, ISOSCORE, "image"), table.get(first, ZERO_SHOT, classes="seen")
    if score is None or right is None:
        return None
    told = [
        f"“{name}” makes it {brief(after)}, with {percent(accuracy)} right"
        for name in maps
        if (after := table.get(name, ISOSCORE, "image")) is not None
        and after > ISOTROPIC * score
        and (accuracy := table.get(name, ZERO_SHOT, classes="seen")) is not None
    ]
    if not told:
        return None
    return (
        f"More isotropic is not better: as the model gives them, images have an IsoScore of {brief(score)} and "
        f"{percent(right)} of the pictures of seen classes are named right; {', '.join(told)}."
    )


def _accuracy(table: Table, first: str, maps: Sequence[str]) -> str | None:
    """Seen and held-out classes as they come, and the map that costs the held-out ones more than the seen ones."""
    rows = {name: table.row(first, (ZERO_SHOT, "both", name)) for name in ("seen", "held out")}
    parts = [
        f"{percent(row['value'])} of {row['n']} unseen pictures of {name.replace(' ', '-')} classes"
        for name, row in rows.items()
        if row is not None
    ]
    null = as_number((rows["seen"] or {}).get("null_value"))
    if not parts:
        return None
    chance = "" if null is None else f" (chance {100 * null:.3g}%)"
    return f"As the model gives them, prompts name {' and '.join(parts)} right{chance}{_cost(table, first, maps)}."


def _cost(table: Table, first: str, maps: Sequence[str]) -> str:
    kinds = ("seen", "held out")
    before = [table.get(first, ZERO_SHOT, classes=kind) for kind in kinds]
    costs = {}
    for name in maps:
        after = [table.get(name, ZERO_SHOT, classes=kind) for kind in kinds]
        if None not in (*before, *after):
            seen, held_out = (b - a for a, b in zip(after, before, strict=True))  # pyright: ignore
            costs[name] = (held_out - seen, after)
    if not costs:
        return ""
    worst = max(costs, key=lambda name: costs[name][0])
    more, after = costs[worst]
    if more < 0.03:
        return ""
    return f"; after “{worst}” {percent(after[0])} and {percent(after[1])}: the classes never seen pay for it"
