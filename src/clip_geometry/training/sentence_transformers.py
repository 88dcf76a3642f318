"""The geometry of a sentence-transformers model, as an evaluator."""

from collections.abc import Mapping, Sequence
from typing import Any

try:
    from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator
except ModuleNotFoundError as error:
    if error.name == "sentence_transformers":
        raise
    from sentence_transformers.evaluation import SentenceEvaluator  # pyright: ignore[reportMissingImports] # before 6

from clip_geometry.data.given import is_sequence
from clip_geometry.registry import InputError, instance, listed, shown, unknown
from clip_geometry.training.metrics import EmbeddingGeometry
from clip_geometry.training.monitor import evaluating


class GeometryEvaluator(SentenceEvaluator):  # pyright: ignore[reportGeneralTypeIssues]
    """Evaluator for sentence-transformers that measures the geometry of a model's embeddings.

    Give it to `SentenceTransformerTrainer(evaluator=…)`, or call it with a model. It returns the numbers of
    `EmbeddingGeometry` by name, which the trainer logs. Like other evaluators of sentence-transformers, it adds them to
    the model card and, if it has a name, prefixes each with `name_`.

    Args:
        inputs: Modality → inputs of `model.encode`, aligned: for example texts and images, or questions and answers. A
            plain list is the modality "text".
        name: Name of the data, used as a prefix of the numbers.
        batch_size: Batch size for `model.encode`.
        primary_metric: The number that selects the best checkpoint. Default: recall at 1 from the first modality (in
            alphabetical order) to the second; for one modality its effective rank; if these are not measured, the first
            number.
        greater_is_better: Whether a higher primary metric is better.
        options: Options of `EmbeddingGeometry`, such as `measures`.

    Raises:
        InputError: The inputs are not aligned lists, or the primary metric is not measured.

    Example:
        >>> from clip_geometry.training import GeometryEvaluator
        >>> evaluator = GeometryEvaluator({"question": ["Who?", "When?"], "answer": ["Ada.", "In 1843."]}, name="qa")
        >>> evaluator.primary_metric
        'retrieval.image_to_text.r_at_1'
    """

    def __init__(
        self,
        inputs: Mapping[str, Sequence[Any]] | Sequence[Any],
        *,
        name: str = "",
        batch_size: int = 32,
        primary_metric: str | None = None,
        greater_is_better: bool = True,
        **options: Any,
    ):
        super().__init__()
        self.inputs = dict(inputs) if isinstance(inputs, Mapping) else {"text": inputs}
        if not all(map(is_sequence, self.inputs.values())):
            raise InputError(f"inputs are {shown(inputs)}; expected a list, or a mapping of modality → list")
        sizes = {modality: len(items) for modality, items in self.inputs.items()}
        if len(set(sizes.values())) != 1 or 0 in sizes.values():
            raise InputError(f"inputs have {listed(sizes.values())} items; expected aligned lists of equal length")
        options = {"kept": max(2, *sizes.values()), "sync_on_compute": False, **options}
        self.metric = EmbeddingGeometry(*sizes, **options)
        numbers = self.metric.plan.numbers
        defaults = ["retrieval.image_to_text.r_at_1", f"effective_rank/{next(iter(sizes))}", *numbers]
        instance(primary_metric, str | None, "primary_metric", "the name of a number")
        self.primary_metric = primary_metric or next(number for number in defaults if number in numbers)
        if self.primary_metric not in numbers:
            raise unknown("primary_metric", self.primary_metric, numbers, "evaluator.metric.plan.numbers")
        self.name = name
        self.batch_size = batch_size
        self.greater_is_better = greater_is_better

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        with evaluating(model):
            options = {"batch_size": self.batch_size, "convert_to_tensor": True, "show_progress_bar": False}
            rows = {modality: model.encode(items, **options) for modality, items in self.inputs.items()}
        self.metric.reset()
        self.metric.to(next(iter(rows.values())).device).update(**rows)
        values = {name: float(value) for name, value in self.metric.compute().items()}
        self.metric.reset()
        values = self.prefix_name_to_metrics(values, self.name)
        self.store_metrics_in_model_card_data(model, values, epoch, steps)
        return values
