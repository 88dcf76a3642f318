"""Fine-tuning with a penalty on isotropy (Rudman & Eickhoff 2024): does less isotropy improve a transformer?"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from clip_geometry.config import digest
from clip_geometry.display.origin import with_options
from clip_geometry.encoders.runtime import resolve_device
from clip_geometry.registry import library_versions
from clip_geometry.results import Row
from clip_geometry_experiments.kit.base import Cell, Experiment, experiments, read_explanations
from clip_geometry_experiments.kit.training import Checkpoint
from clip_geometry_experiments.report.figures import FigureEntry, save_drawings
from clip_geometry_experiments.rudman2024.finetune import measuring, training
from clip_geometry_experiments.rudman2024.finetune.figures import draw_finetune, draw_tasks, sentences
from clip_geometry_experiments.rudman2024.finetune.model import FinetuneConfig, FineTuned, Method, load_transformer
from clip_geometry_experiments.rudman2024.finetune.training import FineTuningTrainer


class Finetune(Experiment):
    """Figures 1-3 and 5-7 of Rudman & Eickhoff 2024: fine-tuning of a transformer and a head with different methods.

    The methods are the plain loss, I-STAR or CosReg added to the loss, and the plain loss with all-but-the-top before
    the head. A cell is one method with one seed. The last cell pools the seeds and correlates performance with
    isotropy.
    """

    Config = FinetuneConfig
    explanations = read_explanations(Path(__file__).with_name("numbers.yaml"))

    @cached_property
    def examples(self) -> tuple[training.Examples, training.Examples]:
        """The training examples and the validation examples."""
        config = self.config
        train = training.load_examples(config.task)
        if config.held_out:
            return training.hold_out(train, config.held_out, config.seed)
        return train, training.load_examples(config.validation_task())

    @cached_property
    def inputs(self) -> tuple[training.Windows, training.Windows]:
        """The tokens of the training and the validation examples, which any model of this config shares."""
        config = self.config
        model, tokenizer = load_transformer(config.model, self.examples[0].texts)
        if config.model.pooling == "cls" and self.examples[0].kind != "span":
            training.require_cls(tokenizer, config.model.model, "set pooling: mean")
        size = {"name": config.model.model, "max_length": config.max_length, "overlap": config.overlap}
        train, validation = (training.encode(examples, tokenizer, model, **size) for examples in self.examples)
        return train, validation

    # --- cells

    def cells(self) -> Iterator[Cell]:
        for method in self.config.each_method:
            for seed in self.config.seeds:
                define = {"measure": "finetune", "method": str(method), "training_seed": seed, **self._shared}
                yield Cell(define, partial(self._training_rows, digest(define), method, seed), f"{method}, seed {seed}")
        define = {"measure": "finetune", "of": "all seeds", **self._shared}
        define |= {"methods": list(self.config.methods), "seeds": list(self.config.seeds)}
        yield Cell(define, self._pooled_rows, "all seeds")

    @cached_property
    def _shared(self) -> dict[str, Any]:
        """Everything that the numbers depend on besides method and seed."""
        train, validation = self.examples
        return self.config.settings("seeds", "methods") | {
            "model_revision": self.config.model.revision(),
            "task_revision": train.revision,
            "validation_revision": validation.revision,
            "version": library_versions()["clip-geometry"],
        }

    def _training_rows(self, key: str, method: Method, seed: int) -> list[Row]:
        """Train with one method and seed and return result rows; `key`, the cell's key, names the checkpoint."""
        trainer = self.trained(method, seed, Checkpoint.of(self.workspace.folder, key))
        config = self.config
        validation = self.examples[1]
        inputs = self.inputs[1]
        evaluation = measuring.evaluate(trainer, inputs, seed=config.seed)
        layers = trainer.model.transformer.config.num_hidden_layers
        classes = validation.targets if validation.kind == "class" else None
        rows = [
            *measuring.performance_rows(measuring.metrics(validation, inputs, evaluation), validation),
            *measuring.geometry_rows(evaluation, layers, classes),
        ]
        origin = measuring.context(config, validation)
        at = {**method.at(), measuring.SEED: seed}
        return [{**origin, **row, "at": {**at, **row["at"]}} for row in rows]

    def trainer(self, method: Method, seed: int) -> FineTuningTrainer:
        """Return the trainer in its state before the first step."""
        config = self.config
        train_on, _ = self.examples
        transformer, _ = load_transformer(config.model, train_on.texts)
        model = FineTuned(
            transformer,
            outputs=train_on.outputs,
            spans=train_on.kind == "span",
            pooling=config.model.pooling,
            seed=seed,
        )
        device = resolve_device(self.workspace.device)
        return FineTuningTrainer(model, self.inputs[0], config, method, seed=seed, device=device)

    def trained(self, method: Method, seed: int, checkpoint: Checkpoint | None = None) -> FineTuningTrainer:
        """Return the trainer after the last step, resumed from the checkpoint if there is one."""
        trainer = self.trainer(method, seed)
        trainer.run(checkpoint=checkpoint, name=f"{self.examples[0].name}, {method}, seed {seed}")
        return trainer

    def _pooled_rows(self) -> list[Row]:
        """Compute the pooled rows from the records of the trainings, which are already written."""
        rows = measuring.pooled_rows(row for row in self.finished_rows() if row["at"][measuring.SEED] != measuring.ALL)
        return [{**measuring.context(self.config, self.examples[1]), **row} for row in rows]

    # --- the report

    def tabled(self, row: Row) -> bool:
        """Show records over all seeds in the table; the others are dots in the figures."""
        return row["at"].get(measuring.SEED) == measuring.ALL

    @property
    def _model(self) -> str:
        return with_options(self.config.model.model, self.config.model.options())

    def drawings(self) -> Mapping[str, Any]:
        return draw_finetune(self.finished_rows())

    def origin(self) -> str:
        config = self.config
        train_on, validation = self.examples
        return (
            f"{train_on.name}, {len(train_on)} training examples, {len(validation)} of {validation.split}; "
            f"{self._model}; {config.epochs} epochs, lr {config.lr:g}; seeds {', '.join(map(str, config.seeds))}."
        )

    @classmethod
    def sentences(cls, planned: "Sequence[Finetune]") -> list[str]:
        return sentences({each.label(): each.finished_rows() for each in planned})

    @classmethod
    def together(cls, planned: "Sequence[Finetune]", folder: Path) -> list[FigureEntry]:
        """Draw Figure 6 (methods over all tasks) and Figure 5 for all tasks."""
        drawn = draw_tasks({each.label(): each.finished_rows() for each in planned})
        seeds = max(len(each.config.seeds) for each in planned)
        return save_drawings(drawn, folder, origin=f"Up to {seeds} seeds.", group="all runs together")

    def label(self) -> str:
        return f"{self.examples[0].name}, {self._model}"


experiments.add("finetune", Finetune)
