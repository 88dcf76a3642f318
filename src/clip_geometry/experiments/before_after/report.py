"""What maps do to the same pairs, all of it side by side: a line per map, a panel per number; and in sentences."""

import math
from collections.abc import Iterable, Mapping, Sequence
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
WAYS = {"image": "image_to_text", "text": "text_to_image"}
FIRST = {modality: f"{MIXED}{way}.r_at_1" for modality, way in WAYS.items()}
RECALL = {modality: f"retrieval.{way}.r_at_1" for modality, way in WAYS.items()}
CLOSED = 0.2  # of the gap as it comes, below which it counts as closed
OPENED = 0.2  # of the average cosine likewise
ISOTROPIC = 3.0  # times the IsoScore as it comes, from which on rows count as more isotropic
ERRORS = 2.0  # standard errors of a difference, up to which two shares are a tie

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
    Panel("mixed index: own\nmodality, top 10", _each(OWN)),
    Panel("mixed index:\npartner first", _each(FIRST)),
    Panel("cross-modal:\npartner first", _each(RECALL)),
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
        "partner is the nearest row; then the same among rows of the other modality alone, ordinary recall at 1. "
        f"Dashed: what isotropic noise gives, and chance for the accuracy. {origin}"
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
    """The maps after which most images find their own text first in an index of both, ties included, and what ordinary
    recall becomes after them."""
    key = (FIRST["image"], "both", "")
    before, known = table.row(first, key), {name: row for name in maps if (row := table.row(name, key)) is not None}
    if before is None or not known or max(row["value"] for row in known.values()) <= before["value"]:
        return None
    best = max(known.values(), key=lambda row: row["value"])
    ties = {name: row for name, row in known.items() if not _beyond(best, row)}
    shares = _listed(_with_error(row) for row in ties.values())
    names = _listed(f"“{name}”" for name in ties)
    found = f"an image finds its own text first, before all images, in {shares} of cases"
    if not _beyond(best, before):
        return f"No map helps beyond the error: after {names} {found}, as it comes in {_with_error(before)}."
    head = f"What helps most is {names}" if len(ties) == 1 else f"{names} tie within their errors as what helps most"
    return (
        f"{head}: {found} instead of {percent(before['value'])}{_own_shares(table, ties)}. "
        f"{_recall(table, first, list(ties))}"
    )


def _own_shares(table: Table, names: Iterable[str]) -> str:
    shares = [table.get(name, OWN["image"]) for name in names]
    return "" if None in shares else f", and {_listed(map(percent, shares))} of its ten nearest are images"  # pyright: ignore


def _recall(table: Table, first: str, maps: Sequence[str]) -> str:
    """Ordinary recall, among the other modality alone, as it comes and after maps."""
    keys = [(measure, "both", "") for measure in RECALL.values()]
    rows = {name: [row for key in keys if (row := table.row(name, key)) is not None] for name in (first, *maps)}
    before = rows.pop(first)
    if not before or any(len(after) < len(before) for after in rows.values()):
        return "What ordinary recall, among the other modality alone, loses by it was not measured."
    ways = " and ".join(row["measure"].split(".")[1].replace("_", " ") for row in before)
    values = "; ".join(
        f"{_listed(percent(row['value']) for row in after)} after “{name}”" for name, after in rows.items()
    )
    losers = [
        f"“{name}”"
        for name, after in rows.items()
        if any(_beyond(b, a) and a["value"] < b["value"] for b, a in zip(before, after, strict=True))
    ]
    verdict = (
        f"{_listed(losers)} cost{'s' * (len(losers) == 1)} recall beyond the error"
        if losers
        else "no loss beyond the error"
    )
    return (
        f"Ordinary recall at 1, among the other modality alone ({ways}), is "
        f"{_listed(percent(row['value']) for row in before)} as it comes, {values}: {verdict}."
    )


def _error(row: Row) -> float:
    """Of a share: as recorded, or that of n independent draws."""
    value = row["value"]
    return as_number(row.get("standard_error")) or math.sqrt(max(0.0, value * (1 - value)) / row["n"])


def _beyond(one: Row, other: Row) -> bool:
    """Whether two shares differ by more than ERRORS standard errors. The rows do not say how the two errors depend on
    each other; as of independent samples they are rather too large, so that no tie is called a difference."""
    return abs(one["value"] - other["value"]) > ERRORS * math.hypot(_error(one), _error(other))


def _with_error(row: Row) -> str:
    return f"{percent(row['value'])} ± {100 * _error(row):.1g}%"


def _listed(parts: Iterable[str]) -> str:
    """a, b and c"""
    *head, last = parts
    return f"{', '.join(head)} and {last}" if head else last


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
    """The maps that make rows more isotropic and the accuracy worse, beyond its error."""
    score, right = table.get(first, ISOSCORE, "image"), table.row(first, (ZERO_SHOT, "both", "seen"))
    if score is None or right is None:
        return None
    told = [
        f"“{name}” makes it {brief(after)}, with {percent(row['value'])} right"
        for name in maps
        if (after := table.get(name, ISOSCORE, "image")) is not None
        and after > ISOTROPIC * score
        and (row := table.row(name, (ZERO_SHOT, "both", "seen"))) is not None
        and row["value"] < right["value"]
        and _beyond(row, right)
    ]
    if not told:
        return None
    return (
        f"More isotropic is not better: as the model gives them, images have an IsoScore of {brief(score)} and "
        f"{percent(right['value'])} of the images of seen classes are classified correctly; {', '.join(told)}."
    )


def _accuracy(table: Table, first: str, maps: Sequence[str]) -> str | None:
    """Seen and held-out classes as they come, and the map that costs the held-out ones more than the seen ones."""
    rows = {name: table.row(first, (ZERO_SHOT, "both", name)) for name in ("seen", "held out")}
    parts = [
        f"{percent(row['value'])} of {row['n']} unseen images of {name.replace(' ', '-')} classes"
        for name, row in rows.items()
        if row is not None
    ]
    null = as_number((rows["seen"] or {}).get("null_value"))
    if not parts:
        return None
    chance = "" if null is None else f" (chance {100 * null:.3g}%)"
    return (
        f"As the model gives them, prompts classify {' and '.join(parts)} correctly{chance}{_cost(table, first, maps)}."
    )


def _cost(table: Table, first: str, maps: Sequence[str]) -> str:
    """The map by which held-out classes lose most beyond what seen ones do, if that is beyond the error."""
    keys = [(ZERO_SHOT, "both", kind) for kind in ("seen", "held out")]
    costs = {}
    for name in maps:
        rows = [table.row(of, key) for of in (first, name) for key in keys]
        if any(row is None for row in rows):
            continue
        seen, held_out, *after = (row["value"] for row in rows)  # pyright: ignore
        more, error = (held_out - after[1]) - (seen - after[0]), math.hypot(*map(_error, rows))  # pyright: ignore
        if more > ERRORS * error:
            costs[name] = (more, after)
    if not costs:
        return ""
    worst = max(costs, key=lambda name: costs[name][0])
    after = costs[worst][1]
    return f"; after “{worst}” {percent(after[0])} and {percent(after[1])}: the held-out classes lose more"
