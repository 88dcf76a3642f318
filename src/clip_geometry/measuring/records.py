"""Records of sets: all of their rows, or each group of them, measured through one pipeline."""

from collections.abc import Mapping, Sequence

from clip_geometry.config import digest
from clip_geometry.embedding.engines import Engine
from clip_geometry.embeddings import Embeddings, naming_files
from clip_geometry.geometry import by_group
from clip_geometry.geometry.uncertainty import BLOCKS
from clip_geometry.measuring.scaling import add_scaling
from clip_geometry.measuring.sets import CORE, MeasuredSets, measure_sets, named
from clip_geometry.measuring.splitting import split_by
from clip_geometry.progress import progress
from clip_geometry.registry import InputError
from clip_geometry.results import Record, lines_of
from clip_geometry.rows.arguments import RowError
from clip_geometry.transforms import Step

DEFAULT_STEPS = "normalize"
ALL = "all"  # in place of names: the core and all default measures


def names_to_measure(names: Sequence[str] | str | None, option: str = "measures") -> tuple[list[str], bool]:
    """The measures to take, and whether what cannot be measured is left out with a note.

    Args:
        names: Of measures, or of evaluators for all of their numbers; None for the core, `ALL` for it and all default
            measures.
        option: What a message calls `names`.
    """
    if names is None:
        return list(CORE), True
    if names == ALL:
        return list(dict.fromkeys([*(each.name for each in by_group()), *CORE])), True
    given = names.split(",") if isinstance(names, str) else names
    chosen = [each.name for each in named(name.strip() for name in given if name.strip())]
    if not chosen:
        raise InputError(f"{option} is empty; give names, comma-separated, or leave it out for the core")
    return chosen, False


def records_by(
    column: str | None,
    sets: Mapping[str, Embeddings],
    pipeline: Sequence[Step],
    names: list[str],
    *,
    seed: int,
    blocks: int | None,
    engine: Engine | None = None,
    optional: bool = False,
    scaling: bool = False,
    full_size: int | None = None,
) -> list[Record]:
    """The records of the sets, or of the rows of each value of a column.

    names, optional: as of `names_to_measure`. None of blocks means their default number. scaling, full_size: as of
    `add_scaling`; a full size is one of all rows, so that it does not go with a column.
    """
    if full_size is not None and column is not None:
        raise InputError("a full size and groups of rows were both given; measure each group as a set of its own")
    parts = [({}, sets)] if column is None else [({column: value}, part) for value, part in split_by(sets, column)]
    records = []
    with naming_files(sets), progress("measures", len(parts) * len(names)) as advance:
        for at, part in parts:
            try:
                given = BLOCKS if blocks is None else blocks
                measured = MeasuredSets(part, pipeline, seed=seed, blocks=given, engine=engine)
                if blocks and not 2 <= blocks <= measured.items:  # rather than a table without standard errors
                    raise InputError(
                        f"blocks is {blocks}; expected 0 or from 2 to the number of items, which is {measured.items}"
                    )
                remarks = measured.remarks()
                found = list(measure_sets(measured, names, advance, optional=optional))
                if scaling or full_size is not None:
                    add_scaling(measured, found, full_size)
            except InputError as error:
                if not at or isinstance(error, RowError):  # a row is named by its file, in which rows are counted
                    raise
                group = ", ".join(f"{key} {value}" for key, value in at.items())
                raise InputError(f"in the group of {group}: {error}") from None
            shared = {**measured.context(), **({"remarks": remarks} if remarks else {})}
            records += [Record.of({**shared, **each, "at": {**at, **each["at"]}}) for each in found]
    return records


def as_lines(records: Sequence[Record]) -> str:
    """The records as a results file of their own, which `read_rows` and `clip-geometry compare` read."""
    return lines_of(digest([dict(record) for record in records]), records)
