"""Repairs of a mixed index on given data: what they find, what they cost, and which one to take."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from clip_geometry.display.table import read_explanations
from clip_geometry.registry import InputError
from clip_geometry.results import Record, Row
from clip_geometry_experiments.kit.base import Cell, Experiment, Model, RunConfig, Source, experiments
from clip_geometry_experiments.kit.stored import check_sources

if TYPE_CHECKING:
    from clip_geometry.diagnosis.comparison import RepairComparison
    from clip_geometry_experiments.report.gallery import FigureEntry
    from clip_geometry_experiments.report.grid import Grid

FAULTS = "mixed_index.faults"


class MixedIndexConfig(RunConfig):
    """Config of the experiment `mixed_index`.

    Args:
        model: An encoder, null for stored embeddings.
        rows: The index: images and texts that pair, or that have labels.
        relevant: "labels" or "pairs", where both are known; null: labels, if every modality has them.
        want: The goal, "both" or "pairs"; see `cg.diagnose`.
        repairs: Names of the repairs to compare; null: all.
        splits: Number of random halves.
        limit: Use only the first N items.
        batch_size: Batch size of the encoder.
    """

    model: Model | None = None
    rows: Source
    relevant: Literal["labels", "pairs"] | None = None
    want: Literal["pairs", "both"] = "both"
    repairs: tuple[str, ...] | None = None
    splits: int = Field(default=10, ge=1, le=1000)
    limit: int | None = Field(default=None, ge=8)
    batch_size: int = Field(default=64, ge=1)

    @field_validator("repairs")
    @classmethod
    def _known(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        from clip_geometry.repairs import repairs

        if names is not None and not names:
            raise InputError("repairs is empty; name some, or set it to null for all")
        for name in names or ():
            _ = repairs[name]
        return names

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_sources(self.model, rows=self.rows)
        return self


class MixedIndex(Experiment):
    """One cell: costs and ties are judged against the same queries of all repairs."""

    Config = MixedIndexConfig
    explanations = read_explanations(Path(__file__).with_name("numbers.yaml"))
    summary = "repairs of a mixed index: what they find, what they cost, which one to take"

    def cells(self) -> Iterator[Cell]:
        config = self.config
        settings = config.model_dump(mode="json", serialize_as_any=True, exclude={"name", "title", "description"})
        define = {"measure": "mixed_index", **settings, **self.workspace.revisions(config.model, config.rows)}
        yield Cell(define, self._rows, "repairs")

    def _rows(self) -> list[Row]:
        from clip_geometry.diagnosis import diagnose
        from clip_geometry.measuring.provenance import context
        from clip_geometry.progress import progress
        from clip_geometry.repairs import repairs
        from clip_geometry_experiments.studies.mixed_index.records import records_of

        config = self.config
        sets = self.workspace.embeddings(config.model, config.rows, limit=config.limit, batch_size=config.batch_size)
        names = config.repairs or tuple(repairs)  # named: faults are reported, and do not keep repairs from comparison
        with progress("fits of repairs", config.splits * len({"none", *names})) as advance:
            found = diagnose(
                sets,
                relevant=config.relevant,
                want=config.want,
                repairs=names,
                splits=config.splits,
                seed=config.seed,
                progress=lambda *_: advance(1),
            )
        assert found.comparison is not None
        wrong = [each for each in found.findings if each.severity != "note"]
        faults = Record(
            FAULTS,
            len(wrong),
            at={"modality": "both"},
            findings=[
                {"check": each.check, "severity": each.severity, "of": list(each.modalities), "evidence": each.evidence}
                for each in wrong
            ],
        )
        dims = {d for _, d in found.shapes.values()}
        shared = context(sets, seed=config.seed, fitted_on="random halves of these rows")
        return [{**shared, "d": max(dims), **row} for row in (faults, *records_of(found.comparison))]

    # --- the report

    @cached_property
    def compared(self) -> "RepairComparison":
        """The comparison as the finished records have it."""
        from clip_geometry_experiments.studies.mixed_index.records import comparison_of

        return comparison_of(self.finished_rows())

    def tabled(self, row: Row) -> bool:
        """By modality, no repair and the best ones: the means of all queries are in the table of repairs."""
        from clip_geometry.diagnosis.table import numbers_of

        compared, at = self.compared, row["at"]
        return row["measure"] == FAULTS or (
            at["modality"] in compared.facts["n"]
            and at["repair"] in {"none", compared.recommended, *compared.ties}
            and row["measure"].partition(".")[2] in numbers_of(compared)
        )

    def tables(self) -> "list[Grid]":
        from clip_geometry_experiments.studies.mixed_index.figures import table

        return [table(self.compared)]

    def facts(self) -> Mapping[str, Any]:
        from clip_geometry.display.origin import data_words, model_words

        row, facts = self.finished_rows()[0], self.compared.facts

        def counted(key: str) -> list[str]:
            return [f"{n:,} {name}" for name, n in facts[key].items()]

        return {
            "model": model_words(row),
            "data": data_words(row),
            "rows": counted("n"),
            "dimension": row["d"],
            "relevant by": facts["relevant_by"],
            "splits": f"{facts['splits']} random halves",
            "fitted on": counted("fitted_on"),
            "searched": counted("index"),
            "queries": counted("queries"),
            "seed": facts["seed"],
        }

    @classmethod
    def sentences(cls, planned: "Sequence[MixedIndex]") -> list[str]:
        from clip_geometry_experiments.studies.mixed_index.figures import tell

        if len(planned) > 1:
            return []
        (faults,) = (row for row in planned[0].finished_rows() if row["measure"] == FAULTS)
        return tell(planned[0].compared, faults["findings"])

    def figures(self, folder: Path, *, prefix: str = "", group: str = "") -> "list[FigureEntry]":
        from clip_geometry_experiments.studies.mixed_index.figures import draw_repairs

        facts = self.facts()
        origin = "; ".join(filter(None, (facts["model"], facts["data"], f"seed {facts['seed']}.")))
        return draw_repairs(self.compared, folder=folder, origin=origin, prefix=prefix, group=group)


experiments.add("mixed_index", MixedIndex)
