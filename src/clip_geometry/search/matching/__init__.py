"""Matches: how likely the first result of a search is right, and which cutoffs accept few wrong results."""

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from clip_geometry.config import Config
from clip_geometry.display.numbers import percent
from clip_geometry.embeddings import model_and_maps
from clip_geometry.files import read_saved, write_json
from clip_geometry.measuring.given import given_sets
from clip_geometry.progress import Progress, quiet
from clip_geometry.registry import InputError, did_you_mean, instance, shown
from clip_geometry.rows.arguments import real_number, seed_number
from clip_geometry.search.matching.answers import LEAST, anchor_sets, relevance, with_near_duplicates
from clip_geometry.search.matching.fit import RATES, JudgedResults, fit_model, random_blocks
from clip_geometry.search.matching.model import Interval, MatchModel
from clip_geometry.search.matching.scores import search
from clip_geometry.search.mixed_index import RelevantBy, require_one_space

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from clip_geometry.display.table import Table

FORMAT = 1
QUERIES = 5000  # most queries per direction
PRODUCTS = 5 * 10**9  # most scores per direction; more rows get fewer queries
LEGEND = (
    "cutoff: a first result is accepted if its probability is higher; false accepts: share of the wrong first results "
    "(no item is right, or another one comes first) that are accepted; wrong among accepted: share of the accepted "
    "results that are wrong; in brackets: 90% interval over items"
)
Z_LEGEND = (
    "cutoff: a first result is accepted if its z-score, divided by √(2 log m) for m items, is higher; false accepts: "
    "share of the queries without an answer whose first result is accepted"
)
FLAT = 1e-6  # standard deviation of equal scores in float32


class _File(Config):
    format: int
    version: str
    models: dict[str, MatchModel]


class Match(Mapping[str, MatchModel]):
    """Result of `match`: a mapping of the direction of search, such as "image_to_text", to its `MatchModel`.

    Attributes:
        models: Direction → `MatchModel`.
        skipped: Direction → why it has no model.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> item = rng.normal(size=(300, 16))
        >>> image, text = (item + 0.7 * rng.normal(size=(300, 16)) for _ in range(2))
        >>> fitted = cg.match(image, text)
        >>> list(fitted), round(fitted["image_to_text"].kept(0.05), 1)
        (['image_to_text', 'text_to_image'], 0.3)
    """

    def __init__(
        self,
        models: Mapping[str, MatchModel],
        results: "Mapping[str, JudgedResults] | None" = None,
        skipped: Mapping[str, str] | None = None,
    ):
        instance(models, Mapping, "models", "direction → MatchModel")
        for model in models.values():
            instance(model, MatchModel, "a model", "a MatchModel")
        self.models, self.skipped = dict(models), dict(instance(skipped, Mapping | None, "skipped", "a mapping") or {})
        self._results = dict(instance(results, Mapping | None, "results", "a mapping") or {})

    def __getitem__(self, direction: str) -> MatchModel:
        if direction not in self.models:
            raise InputError(f"unknown direction {shown(direction)}{did_you_mean(str(direction), self.models)}")
        return self.models[direction]

    def __iter__(self) -> Iterator[str]:
        return iter(self.models)

    def __len__(self) -> int:
        return len(self.models)

    @property
    def frame(self) -> pd.DataFrame:
        """All numbers as a table with the columns direction, number, false_accepts, value, low and high.

        low and high are the ends of the 90% interval over items. right is the probability that a first result is
        right. auc is the area under the ROC curve of right against wrong first results; auc[cosine] is that of the
        cosine alone. For each rate of false accepts, cutoff is the cutoff for the probability, and kept the share of
        the right first results that pass it; cutoff[cosine] and kept[cosine] are those of a flat cutoff on the cosine.
        """
        rows = []
        for direction, model in self.models.items():
            for name, (value, low, high) in model.numbers.items():
                number, _, rate = name.partition("@")
                rows.append((direction, number, float(rate) if rate else np.nan, value, low, high))
        return pd.DataFrame(rows, columns=["direction", "number", "false_accepts", "value", "low", "high"])

    @property
    def verdict(self) -> list[str]:
        """What the scores tell, in two sentences for each direction."""
        sentences = [sentence for model in self.models.values() for sentence in _verdict(model)]
        return sentences + [f"{reason[0].upper()}{reason[1:]}." for reason in self.skipped.values()]

    def table(self) -> "Table":
        """Return the cutoffs as a table, with the verdict."""
        from clip_geometry.display.table import Table, TableColumn

        names = "false accepts", "cutoff", "right results kept", "wrong among accepted", "kept by a cosine cutoff"
        groups: dict[str, list[list[str]]] = {}
        for direction, model in self.models.items():
            if model.identifies:
                groups[direction.replace("_to_", " → ")] = [_line(model.numbers, rate) for rate in RATES]
        return Table(
            [TableColumn(name, "number") for name in names] if groups else [],
            groups,
            verdict=self.verdict,
            named_groups=True,
            legend=[LEGEND if all(model.answerable for model in self.models.values()) else Z_LEGEND] if groups else [],
        )

    def __str__(self) -> str:
        return str(self.table())

    def figure(self) -> "Figure":
        """Draw the reliability of the probabilities, risk against coverage, and the scores with their cutoffs.

        Raises:
            InputError: The models were read from a file or fitted without pairs, so there are no results to draw.
        """
        from clip_geometry.search.matching.figure import draw

        drawn = {name: each for name, each in self._results.items() if self.models[name].coefficients is not None}
        if not drawn:
            raise InputError("there is no figure for models that were fitted without pairs or read from a file")
        return draw(self.models, drawn)

    def save(self, path: str | Path) -> None:
        """Write all models to one JSON file.

        Raises:
            InputError: The file cannot be written.
        """
        models = {name: model.model_dump(mode="json") for name, model in self.models.items()}
        write_json(Path(path), {"format": FORMAT, "version": version("clip-geometry"), "models": models})


def read_match(path: str | Path) -> Match:
    """Read the models that `Match.save` wrote.

    Args:
        path: The JSON file.

    Returns:
        A `Match` that can be applied, but has no `figure`, because the file does not hold the searches behind it.

    Raises:
        InputError: The file is missing or damaged, or does not hold models of a known version.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> image, text = (np.eye(100, 16) + rng.normal(size=(100, 16)) for _ in range(2))
        >>> cg.match(image, text).save("match.json")
        >>> list(cg.read_match("match.json"))
        ['image_to_text', 'text_to_image']
    """
    models = read_saved(path, _File, format=FORMAT, what="match models", writer="Match.save").models
    for direction, model in models.items():  # names of files, when the models are shipped
        if direction != f"{model.query}_to_{model.item}":
            raise InputError(f"{shown(Path(path))} contradicts itself: {shown(direction)} holds another direction")
    return Match(models)


def match(
    image: Any,
    text: Any = None,
    *more: Any,
    answerable: float = 0.5,
    labels: Any = None,
    ids: Any = None,
    relevant: RelevantBy | None = None,
    anchors: Mapping[str, Any] | None = None,
    seed: int = 0,
    progress: Progress = quiet,
) -> Match:
    """Fit, for every direction of search, the probability that a query's first result is right, and cutoffs for it.

    A cosine of 0.28 says little by itself: what it means depends on the model, on the query and on the size of the
    index. The probability is a logistic regression on four features of a search in m items: the best cosine; its
    z-score among all cosines of the query, divided by √(2 log m), which is about the largest of m standard normal
    numbers; the square root of the difference to the second cosine; and log m.

    The model is fitted on searches with the given items as queries: once with their right items in the index and once
    without them, in the whole index and in random halves and quarters of it. The numbers in the table are
    cross-validated over 20 folds of items. Their 90% intervals come from a jackknife over 20 blocks of items.

    Args:
        image: The first set, or all sets; `image`, `labels` and `ids` are given as in `measure`.
        text: The second set.
        more: Further sets.
        answerable: Share of the queries that have an answer in the index, between 0 and 1. It cannot be learned from
            the embeddings: look at a few hundred queries of a log.
        labels: One label per row. If every modality has labels, items with equal labels are right results; within a
            single set, these are duplicates.
        ids: The item of each row. Without labels, rows of the same item are right results for each other.
        relevant: What makes a result right if both labels and ids are given: "labels" or "pairs".
        anchors: Modality → rows that match nothing in the other sets. They are the queries if no right results are
            known. The result then has cutoffs for a rate of false accepts, but no probabilities.
        seed: Seed of the sampled queries, the subsets and the blocks.
        progress: Called as in `cg.embed`; the unit is one direction.

    Returns:
        A `Match`, a mapping of direction, such as "image_to_text", to `MatchModel`.

    Raises:
        InputError: The sets are not as described, have no right items and no anchors, or fewer than 60 queries have an
            answer.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rng = np.random.default_rng(0)
        >>> image, text = rng.normal(size=(2, 200, 16))  # nothing to find
        >>> print(cg.match(image, text).verdict[0])
        Scores cannot identify matches of image queries among text items: no cutoff is offered.
    """
    answerable = real_number(answerable, "answerable", lambda x: 0 < x < 1, "a share between 0 and 1")
    seed = seed_number(seed)
    instance(progress, Callable, "progress", "a function")
    sets = given_sets(image, text, *more, labels=labels, ids=ids)
    require_one_space(sets, "one index")
    if anchors is not None and not (labels is None and relevant is None):
        raise InputError("anchors match nothing, so labels= and relevant= say nothing about them; leave these out")
    codes, items = relevance(sets, relevant, paired=anchors is None)
    queries, directions = sets, [*permutations(sets, 2)] if len(sets) > 1 else [(name, name) for name in sets]
    if anchors is not None:
        queries = anchor_sets(anchors, sets)
        directions = [(name, item) for name in queries for item in sets if item != name]
    models, results, skipped = {}, {}, {}
    with progress("rows of the indexes", sum(len(sets[item]) for _, item in directions)) as advance:
        for number, (query, item) in enumerate(directions):
            rng = np.random.default_rng([seed, number])
            n = len(queries[query])
            rows = np.sort(rng.permutation(n)[: min(QUERIES, max(LEAST, PRODUCTS // len(sets[item])))])
            asked = codes[query] if anchors is None else np.full(n, -1)
            same, labeled = query == item, len(np.unique(codes[item])) < len(codes[item])
            scores = search(queries[query], rows, sets[item], asked, codes[item], exclude_itself=same, advance=advance)
            if scores.std.max() < FLAT:
                raise InputError(f"all scores of each {query} query are equal; expected {item} items that differ")
            if same and not labeled:
                scores = with_near_duplicates(scores)
            answers = int(np.isfinite(scores.right.scores).any(1).sum())
            name, known = f"{query}_to_{item}", anchors is None
            if answers < LEAST and same and not labeled:
                known = False
            elif answers < LEAST and known:
                skipped[name] = (
                    f"{answers} {query} queries have an answer among the {item} items; expected at least {LEAST}, "
                    "because fewer do not determine a cutoff"
                )
                continue
            origins = {"query": model_and_maps(queries[query]), "item": model_and_maps(sets[item])}
            facts = {"query": query, "item": item, "n": len(rows), "dim": sets[item].dim, "origins": origins}
            own = items[query] if anchors is None else -1 - np.arange(n)
            blocks = random_blocks(own[rows], items[item], rng)
            models[name], results[name] = fit_model(scores, blocks, answerable if known else None, seed, facts)
    if not models:
        raise InputError(next(iter(skipped.values())))
    return Match(models, results, skipped)


def _verdict(model: MatchModel) -> list[str]:
    """Return two sentences: what the scores identify, and at which price."""
    numbers, queries = model.numbers, f"{model.query} queries"
    if model.answerable is None:
        return [
            f"No right results are known for {queries} among {model.item} items: there are no probabilities, only "
            "cutoffs for a rate of false accepts.",
            "For 5% of the queries without an answer, the z-score of the first result, divided by √(2 log m), exceeds "
            f"{numbers['cutoff@0.05'][0]:.3f}.",
        ]
    right, low, high = map(percent, numbers["right"])
    premise = (
        f"If {percent(model.answerable)} of the {queries} have an answer among {model.sizes[-1]:,} {model.item} items"
    )
    if not model.identifies:
        auc, lowest, highest = numbers["auc"]
        reason = f"the AUC of the scores is {auc:.2f} ({lowest:.2f} to {highest:.2f}; chance: 0.5)"
        if highest < 0.5 or auc < 0.3 or highest - lowest > 0.5:
            reason = "too few are right to learn from"
        return [
            f"Scores cannot identify matches of {queries} among {model.item} items: no cutoff is offered.",
            f"{premise}, the first result is right for {right} ({low} to {high}), and {reason}; check that row k of "
            "each file is the same item, and that the index has no copies.",
        ]
    kept, flat = numbers["kept@0.05"], numbers["kept[cosine]@0.05"]
    return [
        f"{premise}, the first result is right for {right} ({low} to {high}).",
        f"A cutoff of {numbers['cutoff@0.05'][0]:.2f} on the probability accepts 5% of the wrong first results and "
        f"keeps {percent(kept[0])} of the right ones ({percent(kept[1])} to {percent(kept[2])}); a cutoff on the "
        f"cosine alone, {numbers['cutoff[cosine]@0.05'][0]:.3f}, keeps {percent(flat[0])}.",
    ]


def _line(numbers: Mapping[str, Interval], rate: float) -> list[str]:
    """Return the cells of a row; "–" for numbers that are unknown without pairs."""
    cells = [percent(rate), f"{numbers[f'cutoff@{rate:g}'][0]:.3f}"]
    if "right" not in numbers:
        return [*cells, "–", "–", "–"]
    right, kept = numbers["right"][0], numbers[f"kept@{rate:g}"]
    false = rate * (1 - right)
    flat, cutoff = numbers[f"kept[cosine]@{rate:g}"][0], numbers[f"cutoff[cosine]@{rate:g}"][0]
    shares = "{} ({} to {})".format(*map(percent, kept))
    return [*cells, shares, percent(false / (false + kept[0] * right)), f"{percent(flat)} (cosine > {cutoff:.3f})"]
