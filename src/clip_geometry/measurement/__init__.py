"""One call for a notebook: embeddings in, a measurement out that shows itself as a table, a file or a figure."""

from collections.abc import Sequence
from typing import Any

from clip_geometry.embedding.engines import Engine
from clip_geometry.measurement.given import given_sets
from clip_geometry.measurement.result import Estimate, Measurement
from clip_geometry.measuring.names import names_to_measure
from clip_geometry.measuring.records import DEFAULT_STEPS, records_by
from clip_geometry.rows.arguments import seed_number, whole_number
from clip_geometry.transforms import Step, parse_pipeline

__all__ = ["Estimate", "Measurement", "measure"]


def measure(
    image: Any,
    text: Any = None,
    *more: Any,
    labels: Any = None,
    ids: Any = None,
    pipeline: str | Sequence[str | Step] | None = DEFAULT_STEPS,
    measures: str | Sequence[str] | None = None,
    by: str | None = None,
    seed: int = 0,
    blocks: int | None = None,
    engine: Engine | None = None,
    scaling: bool = False,
    full_size: int | None = None,
) -> Measurement:
    """Measures one or several sets of embeddings, as `clip-geometry measure` does.

    A set is a matrix (n, d) of floats (a NumPy array, a torch tensor, a pandas table, a list of lists), `Embeddings`,
    or a path as for `read_any`. Rows of two sets belong together where their ids agree; sets of equal length without
    ids pair by position, whatever the index of a pandas table.

    Args:
        image: The first set; or all sets, as a mapping of modality → set, or as a folder with several.
        text: The second set. What `Embeddings` and files say of their modality takes precedence over the order. A
            single array is called "rows".
        more: Further sets, each of which says its modality. A mapping is the way to name arrays.
        labels: One label per row, or a path to them. A single sequence goes to all sets of its length; a mapping of
            modality → labels tells sets apart.
        ids: The item of each row, or a path as for labels. A single sequence goes to all sets; a mapping of modality →
            ids tells sets apart.
        pipeline: The steps before measuring, such as "normalize,center[each]"; by default rows are made unit length.
            "" or None measures them as given.
        measures: Names of measures and evaluators, as a list or comma-separated. None for the core: a dozen numbers and
            a verdict on them; "all" for it and all default measures.
        by: "label" or a metadata column of the sets; each of its values is measured separately.
        seed: Seed of the null values and of the jackknife.
        blocks: Number of jackknife blocks behind the standard errors, 0 for none; default: 20 where there are as many
            items.
        engine: Of `open_engine`, to read large sets on a cluster.
        scaling: Take the measures that depend on n at n/2, n/4 and n/8 items, too: columns of `frame`, and
            `Measurement.scaling`. The pipeline stays as it was fitted on all items.
        full_size: Number of items of the set that these are a sample of, which implies `scaling`. The numbers that
            depend on n then say what to expect there, where a fit of the trend supports it.

    Returns:
        A `Measurement`: a number for each measure and set, with its standard error and its null value.

    Raises:
        InputError: A set, a column, a step or a name is not as described, or a named measure cannot be taken.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 100, 8))
        >>> result = cg.measure(image, text + 1, measures=["isoscore", "modality_gap"])
        >>> value, error, null = result["isoscore", "image"]
        >>> round(value, 3), round(error, 3), round(null, 3)
        (0.919, 0.024, 0.901)
        >>> result.frame[["measure", "set", "value", "n", "d"]].round(3)
                measure    set  value    n  d
        0      isoscore  image  0.919  100  8
        1      isoscore   text  0.889  100  8
        2  modality_gap   both  0.759  200  8
        >>> list(cg.measure({"audio": image, "text": text, "video": text + 1}, measures="cka").frame["set"])
        ['audio+text', 'audio+video', 'text+video']
    """
    seed, blocks = seed_number(seed), None if blocks is None else whole_number(blocks, "blocks", least=0)
    steps = parse_pipeline(pipeline or "")
    names, optional = names_to_measure(measures)
    sets = given_sets(image, text, *more, labels=labels, ids=ids)
    records = records_by(
        by,
        sets,
        steps,
        names,
        seed=seed,
        blocks=blocks,
        engine=engine,
        optional=optional,
        scaling=scaling,
        full_size=full_size,
    )
    return Measurement(records)
