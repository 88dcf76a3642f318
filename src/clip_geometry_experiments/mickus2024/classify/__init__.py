"""Embeddings trained under a classifier (Mickus et al. 2024): do clusters form, and does isotropy fall with them?"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from clip_geometry.config import digest
from clip_geometry.display.origin import option_words, pipeline_words, with_options
from clip_geometry.encoders.runtime import resolve_device
from clip_geometry.results import Row
from clip_geometry_experiments.kit.base import (
    Cell,
    Experiment,
    distinct_labels,
    experiments,
    numbered_labels,
    read_explanations,
)
from clip_geometry_experiments.kit.training import Checkpoint, remove_finished
from clip_geometry_experiments.mickus2024.classify import training
from clip_geometry_experiments.mickus2024.classify.config import ClassifyConfig
from clip_geometry_experiments.mickus2024.classify.figures import draw_classify, draw_tasks, first_relation, sentences
from clip_geometry_experiments.mickus2024.classify.rows import (
    SHUFFLED,
    correlated,
    correlation_rows,
    curves_of,
    deviation_rows,
    size_rows,
    state_row,
)
from clip_geometry_experiments.mickus2024.classify.task import Loaded, load, revisions
from clip_geometry_experiments.report.gallery import FigureEntry, save_drawings
from clip_geometry_experiments.tasks import Task, load_task


class Classify(Experiment):
    """Figures 2-4 and tables 1-3 of Mickus et al. 2024: the embeddings are parameters, with one linear layer on them.

    A cell is a seed, and each of its records holds all recorded states of one number: `trajectory`, at the updates 0,
    every, … and the last, whose value is the record's. Every seed is trained again with shuffled labels. The last cell
    pools the seeds.
    """

    Config = ClassifyConfig
    explanations = read_explanations(Path(__file__).with_name("numbers.yaml"))
    explanations |= read_explanations(Path(__file__).with_name("objectives.yaml"))

    @cached_property
    def _task(self) -> Task | None:
        return None if self.config.task is None else load_task(self.config.task)

    @cached_property
    def loaded(self) -> Loaded:
        return load(self.config, self.workspace, self._task)

    # --- cells

    def cells(self) -> Iterator[Cell]:
        config = self.config
        for of in ("a seed", f"a seed, {SHUFFLED}") if config.shuffled else ("a seed",):
            for seed in config.seeds:
                define = {"measure": "classify", "of": of, "classifier_seed": seed, **self._shared}
                what = f"seed {seed}{of.removeprefix('a seed')}"
                yield Cell(define, partial(self._seed_rows, digest(define), seed, shuffled=of != "a seed"), what)
        define = {"measure": "classify", "of": "all seeds", "seeds": list(config.seeds), **self._shared}
        yield Cell(define | ({"null": SHUFFLED} if config.shuffled else {}), self._pooled_rows, "all seeds")

    @cached_property
    def _shared(self) -> dict[str, Any]:
        """What all numbers depend on besides the seeds."""
        unused = {"data", "modality", "limit"} if self.config.data is None else {"task"}
        settings = self.config.settings("seeds", "shuffled", *unused)
        return settings | revisions(self.config, self.workspace, self._task)

    def _seed_rows(self, key: str, seed: int, *, shuffled: bool) -> list[Row]:
        """key: of the cell, which the checkpoint is named after. shuffled: train labels that were dealt at random, and
        record only what correlations are of."""
        remove_finished(self.workspace.folder)
        config, loaded = self.config, self.loaded
        trainer = training.ClassificationTrainer(
            loaded.trained.shuffled(seed) if shuffled else loaded.trained,
            config,
            updates=config.updates,
            seed=seed,
            unseen=None if shuffled else loaded.unseen,
            device=resolve_device(getattr(self.workspace, "device", "auto")),
        )
        measures = correlated(config.measures) if shuffled else config.measures
        trajectory = trainer.run(
            self._recorded.tolist(),
            training.ClassificationCallback(measures, config.sample, config.seed),
            checkpoint=Checkpoint.of(self.workspace.folder, key),
            name=f"{loaded.task.name}, seed {seed}{', ' + SHUFFLED if shuffled else ''}",
        )
        if shuffled:
            trajectory = {
                place._replace(examples=SHUFFLED): values
                for place, values in trajectory.items()
                if place.layer != "output"
            }
        rows: list[Row] = [state_row(config, loaded, place, values, seed) for place, values in trajectory.items()]
        rows += [] if shuffled else correlation_rows(config, curves_of(rows), seed)
        return [{**loaded.context, "updates": config.updates, "seeds": 1, **row} for row in rows]

    def _pooled_rows(self) -> list[Row]:
        """Computed from the seeds' records, which are written by now."""
        config, curves = self.config, curves_of(self.finished_rows())
        rows = [
            *correlation_rows(config, curves, "all"),
            *deviation_rows(config, curves),
            *size_rows(config, self._sizes),
        ]
        return [{**self.loaded.context, "updates": config.updates, "seeds": len(config.seeds), **row} for row in rows]

    @property
    def _sizes(self) -> dict[str, int]:
        task = self.loaded.trained
        parameters = training.Model(task, self.config, seed=0).parameter_count
        return {"examples": len(task.examples), "items": len(task.items), "parameters": parameters}

    # --- the report

    @property
    def _recorded(self) -> np.ndarray:
        """The updates of the recorded states."""
        return np.array(training.recorded_updates(self.config.updates, self.config.measure_every))

    @property
    def _model(self) -> str:
        row = self.loaded.context
        return with_options(row["model"] or "unknown model", row["model_options"])

    @property
    def _classifier(self) -> str:
        config = self.config
        if config.loss == "triplet":
            return "triplet loss, no classifier"
        kind = "linear classifier" if config.classifier == "linear" else f"two layers, {config.hidden} hidden"
        scale = "" if config.init_scale == 1 else f", first weights × {config.init_scale:g}"
        return f"{kind} {'with' if config.bias else 'without'} bias{scale}"

    def drawings(self) -> Mapping[str, Any]:
        remove_finished(self.workspace.folder)
        return draw_classify(curves_of(self.finished_rows()), self._recorded)

    def origin(self) -> str:
        config, sizes = self.config, self._sizes
        facts = (
            f"{self.loaded.task.name}, {sizes['examples']} examples of {sizes['items']} items",
            f"{self._model}, pipeline: {pipeline_words(config.pipeline)}",
            f"{self._classifier}, Adam with lr {config.lr:g}",
            f"seeds {', '.join(map(str, config.seeds))}.",
        )
        return "; ".join(facts)

    @classmethod
    def sentences(cls, planned: "Sequence[Classify]") -> list[str]:
        return sentences(
            dict(zip(cls._labels(planned), (curves_of(each.finished_rows()) for each in planned), strict=True))
        )

    @classmethod
    def _labels(cls, planned: "Sequence[Classify]") -> list[str]:
        """Of several runs, by what differs between them or from the defaults."""
        changed = {name for each in planned for name in each.config.options()}
        return numbered_labels(distinct_labels([each.label(changed) for each in planned]))

    @classmethod
    def together(cls, planned: "Sequence[Classify]", folder: Path) -> list[FigureEntry]:
        """The figures of several runs (for example of several tasks) in one."""
        tasks = {
            label: (each._recorded, first_relation(curves_of(each.finished_rows())))
            for label, each in zip(cls._labels(planned), planned, strict=True)
        }
        origin = f"Adam with lr {planned[0].config.lr:g}."
        return save_drawings(draw_tasks(tasks), folder, origin=origin, group="all runs together")

    def label(self, named: Collection[str] = ()) -> str:
        """named: options that are included at their defaults too."""
        config = self.config
        options = config.options(named)
        model = f"words:{Path(self._model).name}" if self._model.startswith("words:") else self._model
        parts = (self.loaded.task.name, model, pipeline_words(config.pipeline), option_words(options))
        return ", ".join(filter(None, parts))


experiments.add("classify", Classify)
