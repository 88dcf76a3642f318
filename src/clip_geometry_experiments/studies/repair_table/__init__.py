"""The repair table: held-out results of repairs by measure and data set, with paired errors and ranks over the sets."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

from clip_geometry.measuring.views import context
from clip_geometry.registry import InputError
from clip_geometry.results import Record, Row
from clip_geometry_experiments.kit.base import (
    Cell,
    Experiment,
    RunConfig,
    distinct,
    experiments,
    fresh_names,
    read_explanations,
)
from clip_geometry_experiments.studies.repair_table.figures import draw_table, tell
from clip_geometry_experiments.studies.repair_table.measuring import MEASURED, Halves, SetConfig, repair_of
from clip_geometry_experiments.studies.repair_table.table import RepairTable, rows_of, table_of


class RepairTableConfig(RunConfig):
    """Config of the experiment `repair_table`.

    Args:
        sets: The data sets.
        repairs: Names of repairs (`clip-geometry list repairs`) and pipelines. In pipelines, images and texts stand for
            the two modalities of every set. "none" is always included.
        splits: Number of random halves of each set, from 2 to 1000.
    """

    sets: Annotated[tuple[SetConfig, ...], Field(min_length=1), distinct("sets", "name")]
    repairs: tuple[str, ...] = Field(min_length=1)
    splits: int = Field(default=10, ge=2, le=1000)

    @field_validator("repairs")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            repair_of(name)
        return tuple(dict.fromkeys(("none", *names)))


class RepairTableExperiment(Experiment):
    """A cell is one repair on one set, so that adding a repair computes only its own cells."""

    Config = RepairTableConfig
    explanations = read_explanations(Path(__file__).with_name("numbers.yaml"))

    def cells(self) -> Iterator[Cell]:
        config = self.config
        for set_config in config.sets:
            shared: dict[str, Any] = {"experiment": "repair_table", "splits": config.splits, "seed": config.seed}
            shared |= {"set": set_config.model_dump(mode="json", serialize_as_any=True, exclude={"control"})}
            shared["revisions"] = [self.workspace.revisions(*source) for source in set_config.sources()]
            for repair in config.repairs:
                rows = partial(self._rows, set_config, repair)
                yield Cell({**shared, "repair": repair}, rows, f"{repair} on {set_config.name}")

    @cached_property
    def _halves(self) -> dict[str, tuple[Halves, dict[str, list[float]]]]:
        """Set → its halves and its measures without a repair; only the last set is kept, to bound memory."""
        return {}

    def _rows(self, set_config: SetConfig, name: str) -> list[Row]:
        """Measure one repair on one set; rows without values say why the repair could not be fitted."""
        if set_config.name not in self._halves:
            halves = Halves(set_config.index(self.workspace), splits=self.config.splits, seed=self.config.seed)
            self._halves.clear()
            self._halves[set_config.name] = halves, halves.judge(repair_of("none"))
        halves, none = self._halves[set_config.name]
        sets = halves.index.sets
        shared = {
            **context(sets, seed=self.config.seed, fitted_on="random halves of these rows"),
            "n": sum(map(len, sets.values())),
            "d": next(iter(sets.values())).vectors.shape[1],
        }
        repair = repair_of(name)
        try:
            values = none if name == "none" else halves.judge(repair)
        except InputError as error:
            failed = {"note": f"not fitted: {error}", "at": {"set": set_config.name, "repair": name}}
            return [shared | Record(f"repair_table.{measure}", None, **failed) for measure in MEASURED]
        return [shared | row for row in rows_of(set_config.name, name, repair, values, none, halves)]

    # --- the report

    def fresh_models(self) -> Sequence[str]:
        return sorted(set(fresh_names(model for set_config in self.config.sets for model, _ in set_config.sources())))

    @cached_property
    def table(self) -> RepairTable:
        return table_of(
            self.finished_rows(), controls=[set_config.name for set_config in self.config.sets if set_config.control]
        )

    def tabled(self, row: Row) -> bool:
        """Show the numbers without a repair in the table; the figure shows the changes by repairs."""
        return row["at"]["repair"] == "none"

    def facts(self) -> Mapping[str, Any]:
        table = self.table
        return {
            "data sets": [f"{name} ({n:,} rows, {d} dimensions)" for name, (n, d) in table.sizes.items()],
            "nothing to find in": list(table.controls),
        }

    @classmethod
    def sentences(cls, planned: "Sequence[RepairTableExperiment]") -> list[str]:
        return tell(planned[0].table) if len(planned) == 1 else []

    def drawings(self) -> Mapping[str, Any]:
        return draw_table(self.table)


experiments.add("repair_table", RepairTableExperiment)
