"""The geometry of a sentence-transformers model as an evaluator."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

try:
    from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator
except ModuleNotFoundError as error:
    if error.name == "sentence_transformers":
        raise
    from sentence_transformers.evaluation import SentenceEvaluator  # pyright: ignore[reportMissingImports] # before 6

from clip_geometry.integrations.metrics import EmbeddingGeometry
from clip_geometry.integrations.monitor import evaluating
from clip_geometry.registry import InputError, listed, shown, unknown


class GeometryEvaluator(SentenceEvaluator):  # pyright: ignore[reportGeneralTypeIssues]
    """Measures the geometry of a model's embeddings, for `SentenceTransformerTrainer(evaluator=…)` or on its own.

    Returns the numbers of `EmbeddingGeometry` by name. Like the evaluators of sentence-transformers, it appends them to
    a CSV file in the output folder and to the model card, and puts `name_` before each if it has a name.

    Args:
        inputs: Modality → what `model.encode` takes, aligned: texts and images, or questions and answers. A list of
            texts alone is the modality "text".
        name: Of the data, for the file and the numbers.
        batch_size: Of `model.encode`.
        primary_metric: The number that selects the best checkpoint; default: recall at 1 from the first modality (in
            alphabetical order) to the second, of one modality its effective rank, or else the first that is measured.
        greater_is_better: Whether higher is better.
        write_csv: Whether to append to `geometry_evaluation_results.csv`.
        options: Of `EmbeddingGeometry`, such as `measures`.

    Raises:
        InputError: The inputs are no aligned lists, or the primary metric is not measured. On evaluation: the CSV file
            has other columns.

    Example:
        >>> from clip_geometry.integrations import GeometryEvaluator
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
        write_csv: bool = True,
        **options: Any,
    ):
        super().__init__()
        for each in inputs.values() if isinstance(inputs, Mapping) else [inputs]:
            if isinstance(each, str | bytes) or not hasattr(each, "__len__"):
                raise InputError(f"inputs have {shown(each)}; expected a list, or a mapping of modality → list")
        self.inputs = dict(inputs) if isinstance(inputs, Mapping) else {"text": list(inputs)}
        sizes = {modality: len(each) for modality, each in self.inputs.items()}
        if len(set(sizes.values())) != 1 or 0 in sizes.values():
            raise InputError(
                f"there are {listed(f'{n} of {name}' for name, n in sizes.items())}; expected aligned inputs"
            )
        self.metric = EmbeddingGeometry(
            *sizes, **{"kept": max(2, *sizes.values()), "sync_on_compute": False, **options}
        )
        self.name, self.batch_size, self.write_csv = name, batch_size, write_csv
        numbers = self.metric.plan.numbers
        usual = ["retrieval.image_to_text.r_at_1", f"effective_rank/{next(iter(sizes))}", *numbers]
        self.primary_metric = primary_metric or next(each for each in usual if each in numbers)
        if self.primary_metric not in numbers:
            raise unknown("primary_metric", self.primary_metric, numbers, "evaluator.metric.plan.numbers")
        self.greater_is_better = greater_is_better
        self.csv_file = f"geometry_evaluation{'_' + name if name else ''}_results.csv"

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: float = -1, steps: int = -1
    ) -> dict[str, float]:
        columns, path = ["epoch", "steps", *self.metric.plan.numbers, "invalid_rows"], None
        if output_path is not None and self.write_csv:
            path = Path(output_path) / self.csv_file
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a+", newline="", encoding="utf-8") as file:
                file.seek(0)
                header = next(csv.reader(file), None)
                if header is None:
                    csv.writer(file).writerow(columns)
                elif header != columns:
                    raise InputError(f"{shown(path)} has other columns; give another name= or output folder")
        with evaluating(model):
            rows = {
                modality: model.encode(
                    each, batch_size=self.batch_size, convert_to_tensor=True, show_progress_bar=False
                )
                for modality, each in self.inputs.items()
            }
        self.metric.reset()
        self.metric.to(next(iter(rows.values())).device).update(**rows)
        values = {name: float(value) for name, value in self.metric.compute().items()}
        self.metric.reset()
        if path is not None:
            with path.open("a", newline="", encoding="utf-8") as file:
                csv.writer(file).writerow([epoch, steps, *(values[name] for name in columns[2:])])
        values = self.prefix_name_to_metrics(values, self.name)
        self.store_metrics_in_model_card_data(model, values, epoch, steps)
        return values
