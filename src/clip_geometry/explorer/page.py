"""The HTML page: plotly.js, the points as packed numbers, and a script that unpacks only what is displayed."""

import base64
import gzip
import json
import re
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from clip_geometry.display.style import COLOR, COLORS
from clip_geometry.display.words import html_templates, listed, security_policy
from clip_geometry.explorer.points import Points
from clip_geometry.explorer.states import K, State, chances
from clip_geometry.modalities import plural
from clip_geometry.registry import InputError
from clip_geometry.search.mixed_index import label_names

if TYPE_CHECKING:
    from clip_geometry.explorer import Exploration

DARK = {"image": "#56B4E9", "text": "#F08A4B"}  # the colors of the report, for a dark background
SYMBOLS = ("circle", "triangle-up", "square", "diamond")
SHOWN_LABELS = 10  # labels with a color of their own; the palette has this many
TEXT = 300  # largest number of characters of a caption or an id
TEXTS = 5_000_000  # largest number of characters of all captions, and of all ids
NUMBERS = (
    ("modality_gap", "Modality gap, the distance of the means", "distance"),
    ("own_share", "Own modality in the top ten of the mixed index", "share"),
    ("r_at_1", "{} is first in the mixed index", "share"),
    ("hit_at_10", "{} is in the top ten of the mixed index", "share"),
    ("cross_r_at_1", "{} is first among the other modalities", "share"),
    ("neighbors", "Neighbors within a modality that stay", "share"),
)


def plotly_script() -> str:
    """Return the source of plotly.js.

    Raises:
        InputError: plotly is not installed.
    """
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        raise InputError("the explorer needs plotly, which is not installed: pip install plotly")
    return (Path(spec.origin).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


def render(exploration: "Exploration", command: str) -> str:
    """Return the page as HTML; it names `command` as the command that made it."""
    points, states = exploration.points, exploration.states
    illustrations = exploration.illustrations
    drawn = [state for state in states if state.pca is not None]
    plane_numbers = {state.name: k for k, state in enumerate(drawn)}
    planes, plane_arrays = _packed_planes(drawn)
    slider, state_arrays = _packed_states(states, len(points))
    labels, label_arrays = _labels(points)
    partner = "The pair" if points.keyed_by == "pairs" else "One of its label"
    meta = {
        "n": len(points),
        "k": K,
        "width": states[0].neighbors.numbers.shape[1],
        "queries": len(exploration.queries),
        "modalities": _modalities(points),
        "planes": planes,
        "states": [
            facts | {"plane": plane_numbers[state.drawn_as]} for facts, state in zip(slider, states, strict=True)
        ],
        "numbers": [{"key": key, "title": title.format(partner), "kind": kind} for key, title, kind in NUMBERS],
        "chances": chances(points),
        "label": labels,
        "palette": COLORS[1:],
        "keyed_by": points.keyed_by,
        "thumbnails": len(illustrations.thumbnails),
    }
    length = min(TEXT, TEXTS // len(points))
    ids = [value if len(value) <= length else f"…{value[-length:]}" for value in _ids(points)]
    texts = [value if len(value) <= length else f"{value[:length]}…" for value in illustrations.texts]
    files = list(illustrations.thumbnails.values())
    packed = {
        **plane_arrays,
        **state_arrays,
        **label_arrays,
        "queries": exploration.queries.astype("<u4").tobytes(),
        "keys": points.keys.astype("<i4").tobytes(),
        "held": points.held_out.astype("u1").tobytes(),
        "ids": _json(ids).encode(),
        "texts": _json(texts).encode(),
        "thumb-points": np.array(list(illustrations.thumbnails), dtype="<u4").tobytes(),
        "thumb-offsets": np.cumsum([0, *map(len, files)]).astype("<u4").tobytes(),
        "thumbs": b"".join(files),
    }
    encoded = {
        name: Markup(base64.b64encode(gzip.compress(data, 6, mtime=0)).decode()) for name, data in packed.items()
    }
    sizes = listed(f"{len(rows):,} {plural(name)}" for name, rows in points.sets.items())
    folder = Path(__file__).parent
    script, style = ((folder / name).read_text(encoding="utf-8") for name in ("page.js", "page.css"))
    plotly = plotly_script()
    # plotly.js would create these style sheets, but the security policy forbids it. If they exist, plotly.js adds its
    # rules to the first sheet and skips the sheets for maps, which the page does not use.
    sheets = ["plotly.js-style-global", *re.findall(r'document\.getElementById\("([0-9a-f]{64})"\)', plotly)]
    template = html_templates(folder).get_template("page.html")
    return template.render(
        title=exploration.title,
        intro=f"{sizes[0].upper()}{sizes[1:]}, each a point. The slider repairs the rows or their scores; a click on a "
        "point shows its neighbors before and after.",
        alt=f"Scatter plot of {sizes}",
        states=states,
        notes=exploration.notes,
        command=command,
        version=version("clip-geometry"),
        meta=Markup(_json(meta)),
        first={"pca-0": encoded.pop("pca-0")},
        rest=encoded,
        policy=Markup(
            security_policy(scripts=[plotly, script], styles=[style, ""], evaluates=True)
        ),  # plotly.js compiles code
        plotly=Markup(plotly),
        script=Markup(script),
        style=Markup(style),
        sheets=sheets,
    )


def _packed_planes(states: Sequence[State]) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """Return the bounds of the planes of each state, and name → coordinates."""
    bounds, arrays = [], {}
    for number, state in enumerate(states):
        assert state.pca is not None
        bounds.append({"shares": state.pca.shares, "umap": None})
        for name, plane in (("pca", state.pca.points), ("umap", state.umap)):
            if plane is not None:
                axes = [_steps(plane[:, 0]), _steps(plane[:, 1])]
                arrays[f"{name}-{number}"] = b"".join(steps for steps, *_ in axes)
                bounds[-1][name] = [[low, high] for _, low, high in axes]
    return bounds, arrays


def _packed_states(states: Sequence[State], n: int) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """Return the facts of each state, and name → neighbors, their scores, and the counts of the n points."""
    facts, arrays = [], {}
    for number, state in enumerate(states):
        numbers, scores = state.neighbors.numbers, state.neighbors.scores
        present = numbers >= 0
        arrays[f"near-{number}"] = np.where(present, numbers, 2**32 - 1).astype("<u4").tobytes()
        arrays[f"scores-{number}"], low, high = _steps(np.where(present, scores, scores[present].min()))
        arrays[f"counts-{number}"] = np.minimum(state.neighbors.counts(n), 65535).astype("<u2").tobytes()
        facts.append({"name": state.name, "summary": state.summary, "numbers": state.numbers, "scores": [low, high]})
    return facts, arrays


def _steps(values: np.ndarray) -> tuple[bytes, float, float]:
    """Return values as 16-bit steps between their bounds, and the bounds."""
    low, high = float(values.min()), float(values.max())
    return np.rint((values - low) / ((high - low) or 1) * 65535).astype("<u2").tobytes(), low, high


def _modalities(points: Points) -> list[dict[str, Any]]:
    """Return the name, range of points, colors and symbol of each modality."""
    modalities = []
    for k, (name, embeddings) in enumerate(points.sets.items()):
        color = COLOR.get(name) or COLORS[1 + k % (len(COLORS) - 1)]
        style = {"color": color, "dark": DARK.get(name, color), "symbol": SYMBOLS[k % len(SYMBOLS)]}
        start, size = points.starts[name], len(embeddings)
        modalities.append({"name": name, "plural": plural(name), "start": start, "size": size, **style})
    return modalities


def _labels(points: Points) -> tuple[dict[str, Any] | None, dict[str, bytes]]:
    """Return the labels by which points can be colored, with the largest and their sizes, and the packed codes."""
    labels = []
    for embeddings in points.sets.values():
        classes = {str(k): name for k, name in enumerate(embeddings.provenance.get("class_names") or ())}
        labels += [label and classes.get(label, label) for label in label_names(embeddings)]
    codes, names = pd.factorize(np.array(labels, object))
    if not 2 <= len(names) <= 60_000:
        return None, {}
    packed = np.where(codes < 0, len(names), codes).astype("<u2").tobytes()
    sizes = np.bincount(codes[codes >= 0], minlength=len(names))
    largest = np.argsort(-sizes, kind="stable")[:SHOWN_LABELS]
    facts = {"names": names.tolist(), "shown": largest.tolist(), "sizes": sizes[largest].tolist()}
    return facts, {"label": packed}


def _ids(points: Points) -> list[str]:
    """Return the id of each point: that of its item, or the modality and the row number."""
    ids = []
    for name, embeddings in points.sets.items():
        values = range(len(embeddings)) if embeddings.item_id is None else embeddings.item_id
        texts = [str(value) for value in values]
        if all(map(str.isdecimal, texts)):
            texts = [f"{name} {text}" for text in texts]
        ids += texts
    return ids


def _json(value: Any) -> str:
    """Return JSON that no HTML parser mistakes for the end of a script."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
