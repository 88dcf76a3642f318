"""The figure and the sentences of the experiment `maps`."""

import math
from collections.abc import Mapping, Sequence

from clip_geometry.display.numbers import as_number, brief, percent
from clip_geometry.display.origin import Row
from clip_geometry.display.style import COLOR, INK, MARKER, SECOND
from clip_geometry_experiments.kit.figures import map_dots, map_sentences
from clip_geometry_experiments.report.figures import Drawing

Key = tuple[str, str, str]  # measure, modality, classes

GAP: Key = ("modality_gap", "both", "")
ISOSCORE: Key = ("isoscore[unbiased]", "image", "")
OWN: Key = ("retrieval[mixed].image.same_modality_at_10", "both", "")
ACCURACY: Key = ("zero_shot.top_1", "both", "seen")
PANELS: Mapping[str, Mapping[str, Key]] = {  # title of a panel → series → key of its rows
    "modality\ngap": {"both": GAP},
    "average\ncosine": {f"{name}s": ("average_cosine", name, "") for name in ("image", "text")},
    "IsoScore\n(unbiased)": {f"{name}s": ("isoscore[unbiased]", name, "") for name in ("image", "text")},
    "mixed index: own\nmodality, top 10": {
        f"{name}s": (f"retrieval[mixed].{name}.same_modality_at_10", "both", "") for name in ("image", "text")
    },
    **{
        f"{index}:\npartner first": {
            "images": (f"{name}.image_to_text.r_at_1", "both", ""),
            "texts": (f"{name}.text_to_image.r_at_1", "both", ""),
        }
        for index, name in (("mixed index", "retrieval[mixed]"), ("cross-modal", "retrieval"))
    },
    "zero-shot\naccuracy": {"seen classes": ACCURACY, "held-out classes": ("zero_shot.top_1", "both", "held out")},
}
STYLES = {
    "both": (INK, "s"),
    "images": (COLOR["image"], MARKER["image"]),
    "texts": (COLOR["text"], MARKER["text"]),
    "seen classes": (INK, "o"),
    "held-out classes": (SECOND, "D"),
}
RECALLS = {
    f"{index}.{way}.r_at_1": f"share of {query} queries that find their partner first {among}"
    for index, among in (("retrieval[mixed]", "in one index of both"), ("retrieval", "among the other modality"))
    for query, way in (("image", "image_to_text"), ("text", "text_to_image"))
}
CLOSED = 0.2  # a gap below this fraction of the first line's gap counts as closed
CAPTION = (
    "Each line is the same set of pairs after one map or repair, each panel one number; dotted: “{first}”; dashed: its "
    "null value. A repair changes scores, not rows, and has no geometry of its own. Mixed index: all images and texts "
    "in one index, the share of the query's own modality among its ten nearest rows and the share of queries whose own "
    "partner is the nearest row. Cross-modal: ordinary recall at 1, among rows of the other modality only."
)


def rows_at(rows: Sequence[Row], key: Key) -> dict[str, Row]:
    """Return line of the table → its row, for the lines that have a finite value.

    Args:
        rows: Result rows.
        key: The measure, modality and classes of the rows; "" for rows without classes.
    """
    return {
        row["at"]["row"]: row
        for row in rows
        if (row["measure"], row["at"]["modality"], row["at"].get("classes", "")) == key
        and as_number(row.get("value")) is not None
    }


def draw(rows: Sequence[Row]) -> dict[str, Drawing]:
    """Draw the figure of the result rows."""
    panels = {}
    for title, keys in PANELS.items():
        series = {name: rows_at(rows, key) for name, key in keys.items()}
        panels[title] = {name: by_line for name, by_line in series.items() if by_line}
    figure = map_dots({title: series for title, series in panels.items() if series}, STYLES)
    caption = CAPTION.format(first=rows[0]["at"]["row"])
    return {"maps": Drawing("What maps and repairs change and what they do not", figure, caption, wide=True)}


def sentences(rows: Sequence[Row]) -> list[str]:
    """Return sentences on what maps and repairs change compared with the first line of the table."""
    gaps, own, scores, accuracies = (rows_at(rows, key) for key in (GAP, OWN, ISOSCORE, ACCURACY))
    first = rows[0]["at"]["row"]
    sentences = []
    if first in own:
        before = gaps[first]["value"]
        sentence = (
            f"{percent(own[first]['value'])} of the ten rows nearest to an image are images, where an even mix has 50%"
        )
        closing = [name for name, row in gaps.items() if name in own and row["value"] < CLOSED * before]
        if closing:
            name = max(closing, key=lambda name: own[name]["value"])
            sentence += (
                f"; “{name}” reduces the modality gap from {brief(before)} to {brief(gaps[name]['value'])}, but "
            )
            sentence += f"{percent(own[name]['value'])} are still images"
        sentences.append(f"{sentence}.")
    shares = [row | {"standard_error": share_error(row)} for row in map(dict, rows) if row["measure"] in RECALLS]
    sentences += map_sentences(shares, RECALLS, key=None)
    raised = [name for name in scores if name in accuracies and scores[name]["value"] > scores[first]["value"]]
    if raised:
        name = min(raised, key=lambda name: accuracies[name]["value"])
        if accuracies[name]["value"] < accuracies[first]["value"]:
            sentences.append(
                f"More isotropic need not be better: “{name}” raises the IsoScore of images from "
                f"{brief(scores[first]['value'])} to {brief(scores[name]['value'])}, and the share of images of seen "
                f"classes that are classified correctly falls from {percent(accuracies[first]['value'])} to "
                f"{percent(accuracies[name]['value'])}."
            )
    return sentences + map_sentences(rows, {ACCURACY[0]: "zero-shot accuracy"}, key="classes", of="classes")


def share_error(row: Row) -> float:
    """Return the standard error of a share: the recorded one, or else that of n independent draws."""
    value = row["value"]
    return as_number(row.get("standard_error")) or math.sqrt(max(0.0, value * (1 - value)) / row["n"])
