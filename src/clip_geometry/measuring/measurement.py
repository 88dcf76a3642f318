"""One call for a notebook: embeddings in, a measurement out that shows itself as a table, a file or a figure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clip_geometry.display.explained import explain
from clip_geometry.display.table import Table, bibtex, latex
from clip_geometry.embedding.engines import Engine
from clip_geometry.files import write_text
from clip_geometry.measuring.given import given_sets
from clip_geometry.measuring.records import DEFAULT_STEPS, as_lines, names_to_measure, records_by
from clip_geometry.measuring.table import measurement_table, verdict
from clip_geometry.paths import expanded
from clip_geometry.progress import Progress, quiet
from clip_geometry.registry import InputError, did_you_mean, listed, shown
from clip_geometry.results import Record
from clip_geometry.rows.arguments import seed_number, whole_number
from clip_geometry.transforms import Step, parse_pipeline

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


_SIZE = ("n", "value", "standard_error", "subsets")


class Estimate(NamedTuple):
    """One number of a measurement.

    Args:
        value: The number.
        standard_error: Its standard error, None where there is none.
        null_value: The same measure on isotropic noise of the same size, None where there is none.

    Example:
        >>> import clip_geometry as cg
        >>> cg.Estimate(0.0816, 0.0027, 0.4929)
        Estimate(value=0.0816, standard_error=0.0027, null_value=0.4929)
    """

    value: float
    standard_error: float | None
    null_value: float | None


@dataclass(frozen=True, repr=False, eq=False)
class Measurement:
    """Numbers of one or several sets, each with its standard error and its null value.

    Iteration and `len` are over the records of the numbers that could be computed; `notes` says why others could not.
    A notebook shows the table; pointing at a measure there says how to read it.

    Args:
        records: Records of `read_rows` on a file of `clip-geometry measure --json`, or of `measure_sets`.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> result = cg.measure({"audio": x}, measures=["isoscore", "average_cosine"])
        >>> result["isoscore", "audio"].value == result["isoscore"].value
        True
        >>> result
        pipeline: normalize; 100 audio rows in 8 dimensions
        <BLANKLINE>
        measure         set               value    null     direction  range
        average_cosine  audio  -0.0055 ± 0.0053  0.0021  ↓  isotropic  -1 … 1
        isoscore        audio     0.919 ± 0.024   0.901  ↑  isotropic  0 … 1
        <BLANKLINE>
        ±: standard error, jackknife over 20 blocks of items; not shown where it is 0
        null: the same measure on an isotropic Gaussian of this n and d, through this pipeline
        ↓ lower, ↑ higher is more isotropic, closer, … (clip-geometry list measures NAME says which)
        for comparison, CLIP ViT-B/16 on COCO (500 pairs): average_cosine 0.5315 (image), 0.5152 (text) (the
        page of measures has other models)
    """

    records: Sequence[Record]

    @property
    def notes(self) -> dict[str, str]:
        """Why a measure could not be computed, by its name; with the set where only some lack it."""
        reasons: dict[str, dict[str, None]] = {}
        for record in self.records:
            if record.value is None:
                where = ", ".join(map(str, record.at.values()))
                reasons.setdefault(record.measure, {})[": ".join(filter(None, (where, record.note)))] = None
        return {name: "; ".join(several) for name, several in reasons.items()}

    @property
    def verdict(self) -> str:
        """What the core measures say, in two or three sentences, as `clip-geometry measure` prints it.

        Empty where the core was not measured, or with `by`.

        Example:
            >>> import numpy as np, clip_geometry as cg
            >>> x = np.random.default_rng(0).normal(size=(100, 8))
            >>> cg.measure(x + 1).verdict.partition("; isotropic")[0]
            'The rows sit in a cone (average cosine 0.49'
        """
        return verdict(self.records)

    @property
    def frame(self) -> "pandas.DataFrame":
        """A row per measure and set: value, standard_error, null_value, n, d, unit, direction, title and note.

        The values of `by` are a column before the set. With `scaling`, the columns n/4 and n/2 have the values at these
        sizes; with a full size, expected, expected_low and expected_high those to expect there.
        """
        import pandas as pd

        groups = self._groups
        scaled, full = any(record.scaling for record in self), any(record.expected for record in self)
        rows = []
        for record in self:
            sizes = [size["value"] for size in record.scaling or ()]
            expected = record.expected or {}
            about = explain(record.measure)  # None for numbers that only an experiment has
            rows.append(
                {
                    **_place(record, groups),
                    **{key: record.get(key) for key in ("value", "standard_error", "null_value", "n", "d")},
                    **dict(zip(("n/2", "n/4"), sizes[-2::-1], strict=False)),
                    **{f"expected{end and '_'}{end}": expected.get(end or "value") for end in ("", "low", "high")},
                    **{key: getattr(about, key, "") for key in ("unit", "direction", "title")},
                    "note": record.note or "",
                }
            )
        numbers = ["value", "standard_error", "null_value", *(["n/4", "n/2"] if scaled else [])]
        numbers += ["expected", "expected_low", "expected_high"] if full else []
        columns = ["measure", *groups, "set", *numbers, "n", "d", "unit", "direction", "title", "note"]
        return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(numbers, float))

    @property
    def scaling(self) -> "pandas.DataFrame":
        """A row per number that depends on n and size: n (items), value, standard_error and subsets, the smallest
        size first.

        Empty unless `measure` was given `scaling` or a full size.

        Example:
            >>> import numpy as np, clip_geometry as cg
            >>> x = np.random.default_rng(0).normal(size=(400, 32))
            >>> result = cg.measure({"audio": x}, measures="participation_ratio", scaling=True)
            >>> result.scaling[["measure", "set", "n", "value"]].round(1)
                           measure    set    n  value
            0  participation_ratio  audio   50   19.5
            1  participation_ratio  audio  100   24.3
            2  participation_ratio  audio  200   27.7
            3  participation_ratio  audio  400   29.5
        """
        import pandas as pd

        groups = self._groups
        rows = [
            {**_place(record, groups), **{key: size[key] for key in _SIZE}}
            for record in self
            for size in record.scaling or ()
        ]
        return pd.DataFrame(rows, columns=["measure", *groups, "set", *_SIZE])

    @property
    def _groups(self) -> list[str]:
        return list(dict.fromkeys(key for record in self for key in record.at if key != "modality"))

    def __iter__(self) -> Iterator[Record]:
        return (record for record in self.records if record.value is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, key: str | tuple) -> Estimate:
        """The number of a measure: `result["isoscore", "image"]`, or `result["modality_gap"]` where it has only one.

        Of three modalities or more, `result["modality_gap", "audio", "image"]` is the number of two of them. The value
        of `by`, if any, is one more part of the key. Raises InputError for a key of no number or of several.
        """
        name, *places = key if isinstance(key, tuple) and key else (key,)
        of_measure = self._of(name)
        found = [record for record in of_measure if _is_at(record, places)]
        if len(found) != 1:
            near = (str([name, *reversed(record.at.values())]) for record in found or of_measure)
            raise InputError(
                f"{[name, *places]} is {'none' if not found else len(found)} of the numbers; expected one of "
                f"{listed(near)}"
            )
        (record,) = found
        return Estimate(record["value"], record.standard_error, record.null_value)

    def _of(self, name: Any) -> list[Record]:
        found = [record for record in self if record.measure == name]
        if found:
            return found
        if name in self.notes:
            raise InputError(f"{name} was not computed: {self.notes[name]}")
        raise InputError(f"no {shown(name)} was measured{did_you_mean(str(name), self._measures, listed_by='.frame')}")

    @property
    def _measures(self) -> list[str]:
        return list(dict.fromkeys(record.measure for record in self))

    def matrix(self, measure: str, *group: Any) -> "pandas.DataFrame":
        """The values of a measure across modalities as a table of modality × modality.

        A row is the first set of the measure and a column the second. Values of a measure that does not depend on their
        order are on both sides of the diagonal. What was not computed is NaN.

        Args:
            measure: Its name.
            group: The value of `by`, if there is one.

        Raises:
            InputError: There are fewer than three modalities, or the measure was not taken across them.

        Example:
            >>> import numpy as np, clip_geometry as cg
            >>> a, b, c = np.random.default_rng(0).normal(size=(3, 100, 8)) + [[[0]], [[1]], [[3]]]
            >>> cg.measure({"a": a, "b": b, "c": c}, measures="modality_gap").matrix("modality_gap").round(2)
                  a     b     c
            a   NaN  0.76  0.98
            b  0.76   NaN  0.23
            c  0.98  0.23   NaN
        """
        import pandas as pd

        found = {
            (couple[0], couple[1]): record["value"]
            for record in self._of(measure)
            if len(couple := _couple(record)) == 2 and all(each in record.at.values() for each in group)
        }
        if not found:
            raise InputError(
                f"{shown(measure)} is no measure across three modalities or more here; result[measure, set] has it"
            )
        if len({tuple(record.at.items())[:-1] for record in self._of(measure)}) > 1 and not group:
            raise InputError(f"there is a matrix of {shown(measure)} for each value of `by`; add one of these values")
        names = sorted({name for couple in found for name in couple})
        table = pd.DataFrame(float("nan"), index=names, columns=names)
        for (one, other), value in found.items():
            table.loc[one, other] = value
            if "swap" in getattr(explain(measure), "invariances", ()):
                table.loc[other, one] = value
        return table

    @property
    def table(self) -> Table:
        """The numbers with what they say and what the columns mean: a `Table`, as text, HTML, Markdown or JSON."""
        return measurement_table(self.records)

    def __repr__(self) -> str:
        return str(self.table)

    def _repr_html_(self) -> str:
        return self.table.html()

    def to_csv(self, path: str | Path) -> None:
        """Writes `frame` as a .csv file."""
        _write(path, self.frame.to_csv(index=False))

    def to_latex(self, path: str | Path | None = None) -> str:
        r"""The table in LaTeX, for a document that loads booktabs.

        Args:
            path: Where to write it, too.

        Returns:
            A `table` with a line per measure and set: the value with its standard error, and the null value. Its title
            says what was measured, and cites the entries of `to_bibtex`.

        Example:
            >>> import numpy as np, clip_geometry as cg
            >>> x = np.random.default_rng(0).normal(size=(100, 8))
            >>> print(cg.measure({"audio": x}, measures="average_cosine").to_latex())  # doctest: +ELLIPSIS
            % needs booktabs; the entries that it cites are in BibTeX's file
            \begin{table}
            \centering
            \caption{pipeline: normalize; 100 audio rows in 8 dimensions. ...~\cite{ethayarajh2019}.}
            \label{tab:geometry}
            \begin{tabular}{llrrl}
            \toprule
            measure & set & value & null &  \\
            \midrule
            Average cosine & audio & $-0.0055 \pm 0.0053$ & 0.0021 & $\downarrow$ \\
            \bottomrule
            \end{tabular}
            \end{table}
            <BLANKLINE>
        """
        table = measurement_table(self.records, crossed=False)
        text = latex(table, label="tab:geometry", measures=self._measures)
        if path is not None:
            _write(path, text)
        return text

    def to_bibtex(self, path: str | Path | None = None) -> str:
        """The BibTeX entries that `to_latex` cites: this package, and the sources of the measures.

        The sources have authors, year and identifier; a reference manager completes them.

        Args:
            path: Where to write them, too.

        Example:
            >>> import numpy as np, clip_geometry as cg
            >>> x = np.random.default_rng(0).normal(size=(100, 8))
            >>> print(cg.measure({"audio": x}, measures="average_cosine").to_bibtex())  # doctest: +ELLIPSIS
            @misc{clip-geometry,
            ...
            @misc{ethayarajh2019,
              author = {Ethayarajh},
              year = {2019},
              eprint = {1909.00512},
              archiveprefix = {arXiv},
            }
            <BLANKLINE>
        """
        text = bibtex(self._measures)
        if path is not None:
            _write(path, text)
        return text

    def to_json(self, path: str | Path) -> None:
        """Writes what `clip-geometry measure --json` writes: `read_rows` and `clip-geometry compare` read it."""
        _write(path, as_lines(self.records))

    def plot(self) -> "Figure":
        """Draws the numbers: a panel per measure, with the values of all sets, standard errors and null values.

        Of three modalities or more, measures across them are heat maps of modality × modality.
        """
        from clip_geometry.measuring.figure import draw

        return draw(self.records)


def _place(record: Record, groups: Sequence[str]) -> dict[str, Any]:
    of_groups = {key: record.at.get(key) for key in groups}
    return {"measure": record.measure, **of_groups, "set": record.at.get("modality")}


def _couple(record: Record) -> list[str]:
    """["audio", "image"] of "audio+image", otherwise the set alone."""
    return str(record.at.get("modality", "")).split("+")


def _is_at(record: Record, places: Sequence[Any]) -> bool:
    """Whether each place is a value of `by` or the set, of which the key may leave out what needs no saying."""
    groups = [value for key, value in record.at.items() if key != "modality"]
    names = [name for place in places if place not in groups for name in str(place).split("+")]
    swaps = "swap" in getattr(explain(record.measure), "invariances", ())
    return names in ([], _couple(record)) or (swaps and names == _couple(record)[::-1])


def _write(path: str | Path, text: str) -> None:
    write_text(expanded(path), text)


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
    progress: Progress = quiet,
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
        progress: Shows the progress over measures, such as `clip_geometry.progress.progress`.

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
        progress=progress,
    )
    return Measurement(records)
