"""An HTML page to explore embeddings: points, repairs on a slider, and neighbors before and after each repair."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.display import words
from clip_geometry.explorer.page import plotly_script, render
from clip_geometry.explorer.points import MOST_FIT, Illustrations, Points, choose_points, illustrate
from clip_geometry.explorer.states import NONE, State, states_of
from clip_geometry.files import claimed, write_atomically
from clip_geometry.measuring.given import given_sets
from clip_geometry.progress import Progress, quiet
from clip_geometry.registry import instance, names_in
from clip_geometry.rows.arguments import flag, seed_number, whole_number

__all__ = ["Exploration", "explore"]

LIMIT = 100_000  # largest number of points
WORK = 5 * 10**8  # largest number of products of a query and a point per map; up to 22,000 points can all be queries
LIST_BYTES = 16_000_000  # bytes for all neighbors on the page: 6 for each of a query's 20


@dataclass(frozen=True, eq=False)
class Exploration:
    """The data behind the interactive page of `explore`.

    Attributes:
        points: The displayed rows, at unit length, and what is known about them.
        queries: (q,) indices of the points whose neighbors were computed.
        states: The stops of the slider: first no repair, then one repair each, with its coordinates in the plane, the
            nearest rows of the queries, and measured values such as recall.
        failed: Repair → why it was left out.
        illustrations: Captions and thumbnails.
        title: Title of the page.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 50, 8))
        >>> exploration = cg.explore(image + 1, text - 1, repairs=["center"], umap=False)
        >>> {state.name: round(state.numbers["own_share"], 2) for state in exploration.states}
        {'none': 1.0, 'center': 0.51}
        >>> exploration.to_html()[:15]
        '<!doctype html>'
    """

    points: Points
    queries: np.ndarray
    states: Sequence[State]
    failed: Mapping[str, str]
    illustrations: Illustrations
    title: str

    @property
    def notes(self) -> list[str]:
        """Sentences that the reader of the page needs to know about samples, fits and omissions."""
        scored = [state.name for state in self.states if state.name not in (state.drawn_as, NONE)]
        template = Path(__file__).with_name("notes.j2")
        text = words.render(template, exploration=self, scored=scored, most_fit=MOST_FIT)
        return [*filter(None, text.splitlines()), *self.illustrations.notes]

    def to_html(self, command: str = "") -> str:
        """Return the page as HTML.

        Args:
            command: The command that made the page, to be shown on it.

        Raises:
            InputError: plotly is not installed.
        """
        return render(self, command)

    def save(self, path: str | Path) -> Path:
        """Write the page to a new .html file, completely or not at all, and return its path.

        Args:
            path: The file, which must not exist yet.

        Raises:
            InputError: The file exists or cannot be written, or plotly is not installed.
        """
        with claimed(Path(path)) as target:
            write_atomically(target, self.to_html().encode())
            return target


def explore(
    image: Any,
    text: Any = None,
    *more: Any,
    labels: Any = None,
    ids: Any = None,
    repairs: Sequence[str] | None = None,
    pipeline: str = "",
    limit: int = LIMIT,
    data: Any = None,
    captions: str | Path | None = None,
    umap: bool = True,
    title: str | None = None,
    seed: int = 0,
    progress: Progress = quiet,
) -> Exploration:
    """Prepare an HTML page that shows embeddings as points, with repairs on a slider and the neighbors of each point.

    Rows are scaled to unit length. The repairs are fitted on half of the items, at most 2,000; the numbers are measured
    with the other items as queries.

    Args:
        image: The first set, or all sets; `image`, `labels` and `ids` are given as in `measure`.
        text: The second set.
        more: Further sets.
        labels: One label per row.
        ids: The item of each row.
        repairs: Names of repairs (changes of the rows or scores that make a mixed index find both modalities), or
            pipeline steps such as "whiten(32)[pooled]". Default: the repairs that map rows, and `posterior`; for more
            than 20,000 points, a few of these. Repairs that reorder a whole result list cannot be shown, because they
            do not score items.
        pipeline: Steps to apply first, such as "center[each]".
        limit: Largest number of points, from 10 to 100,000; if there are more rows, a random sample is shown.
        data: The data set of the rows, as a name or path, such as a folder of images, for captions and thumbnails;
            embedding stores already record it. Items are matched by id, or by position if rows have no ids.
        captions: A file with one caption for each text.
        umap: Whether to draw UMAP next to the principal components, for at most 4,000 points.
        title: Title of the page; default: the model and the data set if known, otherwise the name of the folder.
        seed: Seed of the samples, of the half on which repairs are fitted, and of UMAP.
        progress: Called as in `cg.embed`.

    Returns:
        An `Exploration`, whose `save` writes the file.

    Raises:
        InputError: The sets are not as described, or a repair is unknown.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 50, 8))
        >>> exploration = cg.explore(image + 1, text - 1, repairs=["center"], umap=False)
        >>> exploration.states[1].neighbors.numbers.shape  # ten of its own modality and ten of the other
        (100, 20)
        >>> exploration.save("explore.html").name
        'explore.html'
    """
    seed = seed_number(seed)
    limit = whole_number(limit, "limit", least=10, most=LIMIT)
    instance(progress, Callable, "progress", "a function")
    instance(title, str | None, "title", "text")
    flag(umap, "umap")
    instance(captions, str | Path | None, "captions", "a path")
    repairs = None if repairs is None else names_in(repairs, "repairs")
    plotly_script()  # fails before an hour of work if plotly is missing
    sets = given_sets(image, text, *more, labels=labels, ids=ids)
    points = choose_points(sets, pipeline=pipeline, limit=limit, seed=seed)
    stops = 6 if repairs is None else len(repairs) + 1
    most_queries = min(WORK // len(points), LIST_BYTES // (stops * 20 * 6))
    queries = points.sample(max(most_queries, 100), seed)
    illustrations = illustrate(points, queries, data=data, captions=captions, progress=progress)
    states, failed = states_of(points, queries, repairs, umap=umap, seed=seed, progress=progress)
    title = title or _title(points, image if text is None else None)
    return Exploration(points, queries, states, failed, illustrations, title)


def _title(points: Points, source: Any) -> str:
    """Return the default title: data set and model, or else the name of the folder."""
    manifests = [embeddings.provenance for embeddings in points.sets.values()]
    model = next((str(manifest["model"]) for manifest in manifests if manifest.get("model")), None)
    dataset = next((str(manifest["dataset"]) for manifest in manifests if manifest.get("dataset")), None)
    if model and dataset:
        return f"{dataset} through {model}"
    return Path(source).name if isinstance(source, str | Path) and Path(source).name else "Embeddings"
