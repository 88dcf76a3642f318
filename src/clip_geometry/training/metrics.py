"""The geometry of embeddings as one torchmetrics metric."""

from collections.abc import Sequence
from typing import Any

import torch
import torchmetrics
from torch import Tensor

from clip_geometry.modalities import modality_name
from clip_geometry.registry import InputError, listed, shown
from clip_geometry.rows.arguments import seed_number, whole_number
from clip_geometry.training.sums import GeometrySums, Plan

OF_EACH = (
    "average_cosine",
    "isoscore",
    "isoscore[unbiased]",
    "effective_rank",
    "effective_rank[uncentred]",
    "coordinate_spread",
    "uniformity",
)
ACROSS = (
    "modality_gap",
    "relative_modality_gap",
    "alignment",
    "retrieval.image_to_text.r_at_1",
    "retrieval.text_to_image.r_at_1",
)


class EmbeddingGeometry(torchmetrics.Metric):
    """Modality gap, cone, isotropy, rank, alignment, uniformity and recall of embeddings that come in batches.

    `update(image=…, text=…)` takes aligned batches, row i with row i; `compute()` returns a flat dict of 0-d float64
    tensors: `modality_gap` of two modalities, `effective_rank/image` of one, `modality_gap/image+text` where there are
    more than two. The names are those of `cg.measures`, and the values those of `cg.measure` on all rows, except for
    measures of a sample (see below) where there are more than `kept` items.

    The state is `Moments` and sums over pairs, float64 whatever precision the model is converted to, which merge
    exactly over batches and processes. What sums do not give, `uniformity`, recall and any other measure of rows or
    pairs, is taken of a sample of `kept` items. Which items it has depends on all rows and the seed only, neither on
    their order nor on how processes share them. Recall is among the sample, so compare equal `kept` only.

    Items with a row that is zero, NaN or infinite are left out and counted as `invalid_rows`. A number that is not
    defined, as for rows that are all equal, is NaN, so that a training goes on. `forward` computes of the batch alone,
    which costs more than `update`.

    Args:
        modalities: Names of the modalities; default "image", "text". A single one may be given to `update` by position.
        measures: Names in `cg.measures` that take rows or pairs. None for those above.
        kept: Items of the sample.
        seed: Seed of the sample.
        options: Of `torchmetrics.Metric`, such as `process_group`.

    Raises:
        InputError: A name is unknown, or a measure needs more than rows and pairs. In `update`: a modality is missing,
            or the rows are no pairs in one space.

    Example:
        >>> import torch
        >>> from clip_geometry.training import EmbeddingGeometry
        >>> metric = EmbeddingGeometry()
        >>> image, text = torch.randn(2, 300, 8, generator=torch.Generator().manual_seed(0))
        >>> for start in range(0, 300, 50):
        ...     metric.update(image=image[start : start + 50], text=text[start : start + 50] + 1)
        >>> values = metric.compute()
        >>> round(float(values["modality_gap"]), 3), round(float(values["effective_rank/image"]), 3)
        (0.717, 7.971)
    """

    is_differentiable = False
    higher_is_better = None
    full_state_update = False
    packed: list[Tensor]

    def __init__(
        self,
        *modalities: str,
        measures: Sequence[str] | None = None,
        kept: int = 512,
        seed: int = 0,
        **options: Any,
    ):
        super().__init__(**options)
        names = tuple(modality_name(name) for name in modalities or ("image", "text"))
        if len(set(names)) < len(names):
            raise InputError(f"modalities are {listed(names)}; expected different names")
        if isinstance(measures, str):
            raise InputError(f"measures = {shown(measures)}; expected a list of names")
        if measures is None:
            measures = (*(ACROSS if len(names) > 1 else ()), *OF_EACH)
        if not measures:
            raise InputError("measures is empty; expected names, or None for the usual ones")
        kept, seed = whole_number(kept, "kept", least=2), seed_number(seed)
        self.plan = Plan(tuple(sorted(names)), tuple(measures), kept, seed)
        self.items = 0  # of the last `compute`, with those left out
        self.add_state("packed", [], dist_reduce_fx="cat")
        self._dtype = torch.float64  # of what torchmetrics gathers from a process without rows

    def update(self, *rows: Any, **named: Any) -> None:
        """Adds a batch.

        Args:
            rows: (n, d) of the one modality, if there is one.
            named: (n, d) of each modality by its name.
        """
        known = self.plan.modalities
        if len(rows) == len(known) == 1 and not named:
            named = {known[0]: rows[0]}
        if (rows and named.get(known[0]) is not rows[0]) or named.keys() != set(known):
            got = f"{len(rows)} unnamed and {listed(named)}" if rows else listed(named)
            raise InputError(f"rows of {got} are given; expected update({', '.join(f'{name}=…' for name in known)})")
        batch = GeometrySums.of(self.plan, named)
        if batch is not None:
            before = self.sums
            total = batch if before is None else before + batch
            self.packed = [total.packed()]

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        """Merges the states that torchmetrics only collects, one for each call of the metric."""
        super()._reduce_states(incoming_state)
        total = self.sums
        self.packed = [] if total is None else [total.packed()]

    def compute(self) -> dict[str, Tensor]:
        """The numbers of all rows since the last reset, of all processes; empty without any."""
        sums = self.sums
        self.items = 0 if sums is None else sums.n + sums.invalid
        return {} if sums is None else sums.values()

    @property
    def sums(self) -> GeometrySums | None:
        """The state, merged; None before the first rows."""
        vectors = [self.packed] if isinstance(self.packed, Tensor) else self.packed  # a tensor once gathered
        total = None
        for vector in vectors:
            for part in GeometrySums.unpacked(self.plan, vector):
                total = part if total is None else total + part
        return total

    def _apply(self, fn: Any, exclude_state: Sequence[str] = "") -> "EmbeddingGeometry":
        """Moves the state, but never to another precision: float16 would leave three digits of it."""
        super()._apply(lambda tensor: tensor.to(fn(tensor.float()).device), exclude_state)
        self._dtype = torch.float64
        return self

    def _filter_kwargs(self, **kwargs: Any) -> dict[str, Any]:
        """In a MetricCollection, only the modalities: labels and targets are for the others."""
        return {name: kwargs[name] for name in self.plan.modalities if name in kwargs}
