"""The result of measuring: numbers with their standard errors, displayed as a table or written to a file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clip_geometry.config import digest
from clip_geometry.display.explained import explain
from clip_geometry.display.table import Table, bibtex, latex
from clip_geometry.files import write_text
from clip_geometry.measuring.table import measurement_table, verdict
from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, did_you_mean, listed, shown
from clip_geometry.results import Record, lines_of

if TYPE_CHECKING:
    import pandas


class Estimate(NamedTuple):
    """A measured number with its standard error and its null value.

    Args:
        value: The number.
        standard_error: Its standard error, or None if there is none.
        null_value: Value of the same measure on isotropic Gaussian noise of the same shape, or None if there is none.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> estimate = cg.measure({"image": x}, measures=["isoscore"])["isoscore"]
        >>> isinstance(estimate, cg.Estimate), round(estimate.value, 3), round(estimate.null_value, 3)
        (True, 0.919, 0.901)
    """

    value: float
    standard_error: float | None
    null_value: float | None


@dataclass(frozen=True, repr=False, eq=False)
class Measurement:
    """Result of `measure`: numbers of one or several sets, each with its standard error and its null value.

    `result["isoscore", "image"]` is the `Estimate` of a measure and a set; the set can be left out if there is only
    one. Iteration and `len` cover the numbers that could be computed; `notes` says why others could not. A notebook
    shows the table, in which pointing at a measure explains it.

    Args:
        records: Records from `measure_sets`, or from `read_rows` on a file of `clip-geometry measure --json`.

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
        """Maps each measure that could not be computed to the reason, with the set if only some sets lack it."""
        reasons: dict[str, dict[str, None]] = {}
        for record in self.records:
            if record.value is None:
                where = ", ".join(map(str, record.at.values()))
                reasons.setdefault(record.measure, {})[": ".join(filter(None, (where, record.note)))] = None
        return {name: "; ".join(of_measure) for name, of_measure in reasons.items()}

    @property
    def verdict(self) -> str:
        """Conclusion from the core measures in two or three sentences, as printed by `clip-geometry measure`.

        It is empty if the core was not measured, or with `by`.

        Example:
            >>> import numpy as np, clip_geometry as cg
            >>> x = np.random.default_rng(0).normal(size=(100, 8))
            >>> cg.measure(x + 1).verdict.partition("; isotropic")[0]
            'The rows sit in a cone (average cosine 0.49'
        """
        return verdict(self.records)

    @property
    def frame(self) -> "pandas.DataFrame":
        """Table with one row per measure and set.

        The columns are value, standard_error, null_value, n, d, unit, direction, title and note. The values of `by` are
        a column before the set. With `scaling`, the columns n/4 and n/2 hold the values at these sizes. With a full
        size, expected, expected_low and expected_high hold the values to expect there.
        """
        import pandas as pd

        groups = list(dict.fromkeys(key for record in self for key in record.at if key != "modality"))
        rows = []
        for record in self:
            by_size = [size["value"] for size in record.scaling or ()]
            expected = record.expected or {}
            explanation = explain(record.measure)  # None for numbers that exist only in an experiment
            keys = ("measure", "value", "standard_error", "null_value", "n", "d")
            row = {**record.at, "set": record.at.get("modality"), **{key: record.get(key) for key in keys}}
            row |= {key: getattr(explanation, key, "") for key in ("unit", "direction", "title")}
            row |= dict(zip(("n/2", "n/4"), by_size[-2::-1], strict=False))
            row |= {f"expected_{end}": expected.get(end) for end in ("low", "high")}
            rows.append(row | {"expected": expected.get("value"), "note": record.note or ""})
        numbers = ["value", "standard_error", "null_value"]
        numbers += ["n/4", "n/2"] if any(record.scaling for record in self) else []
        numbers += ["expected", "expected_low", "expected_high"] if any(record.expected for record in self) else []
        columns = ["measure", *groups, "set", *numbers, "n", "d", "unit", "direction", "title", "note"]
        return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(numbers, float))

    def __iter__(self) -> Iterator[Record]:
        return (record for record in self.records if record.value is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, key: str | tuple) -> Estimate:
        """Return the number of a measure.

        The key is a measure and a set, as in `result["isoscore", "image"]`, or only a measure, as in
        `result["modality_gap"]`, if it has a single number. With three modalities or more, `result["modality_gap",
        "audio", "image"]` is the number for two of them. With `by`, its value is an additional part of the key. Raises
        InputError if the key matches no number or several.
        """
        name, *places = key if isinstance(key, tuple) and key else (key,)
        of_measure = [record for record in self if record.measure == name]
        if not of_measure and name in self.notes:
            raise InputError(f"{name} was not computed: {self.notes[name]}")
        if not of_measure:
            hint = did_you_mean(str(name), self._measures, listed_by=".frame")
            raise InputError(f"{shown(name)} was not measured{hint}")
        matches = [record for record in of_measure if _is_at(record, places)]
        if len(matches) != 1:
            keys = (str([name, *reversed(record.at.values())]) for record in matches or of_measure)
            raise InputError(
                f"{[name, *places]} matches {len(matches) or 'none'} of the numbers; expected one of {listed(keys)}"
            )
        (record,) = matches
        return Estimate(record["value"], record.standard_error, record.null_value)

    @property
    def _measures(self) -> list[str]:
        return list(dict.fromkeys(record.measure for record in self))

    @property
    def table(self) -> Table:
        """The numbers with the verdict and the meaning of the columns: a `Table`, as text, HTML, Markdown or JSON."""
        return measurement_table(self.records)

    def __repr__(self) -> str:
        return str(self.table)

    def _repr_html_(self) -> str:
        return self.table.html()

    def to_csv(self, path: str | Path) -> None:
        """Write `frame` to a .csv file.

        Args:
            path: The file to write.
        """
        _after_writing(self.frame.to_csv(index=False), path)

    def to_latex(self, path: str | Path | None = None) -> str:
        r"""Return the table in LaTeX, for a document that loads booktabs.

        Args:
            path: File to write the table to, too. None writes no file.

        Returns:
            A `table` with one line per measure and set: the value with its standard error, and the null value. Its
            caption says what was measured, and cites the entries of `to_bibtex`.

        Example:
            >>> import numpy as np, clip_geometry as cg
            >>> x = np.random.default_rng(0).normal(size=(100, 8))
            >>> print(cg.measure({"audio": x}, measures="average_cosine").to_latex())  # doctest: +ELLIPSIS
            % needs booktabs; the BibTeX file has the entries that it cites
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
        return _after_writing(latex(table, label="tab:geometry", measures=self._measures), path)

    def to_bibtex(self, path: str | Path | None = None) -> str:
        """Return the BibTeX entries that `to_latex` cites: this package and the sources of the measures.

        The sources have authors, year and identifier; a reference manager can complete them.

        Args:
            path: File to write the entries to, too. None writes no file.

        Returns:
            The entries as text.

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
        return _after_writing(bibtex(self._measures), path)

    def to_json(self, path: str | Path) -> None:
        """Write the records as `clip-geometry measure --json` does, for `read_rows` and `clip-geometry compare`.

        Args:
            path: The file to write.
        """
        _after_writing(lines_of(digest([dict(record) for record in self.records]), self.records), path)


def _is_at(record: Record, places: Sequence[Any]) -> bool:
    """Return whether each place is a value of `by` or the set; the key may leave out places that are not needed."""
    groups = [value for key, value in record.at.items() if key != "modality"]
    names = [name for place in places if place not in groups for name in str(place).split("+")]
    couple = str(record.at.get("modality", "")).split("+")
    swaps = "swap" in getattr(explain(record.measure), "invariances", ())
    return names in ([], couple) or (swaps and names == couple[::-1])


def _after_writing(text: str, path: str | Path | None) -> str:
    """Return the text after writing it to the path, if there is one."""
    if path is not None:
        write_text(expanded(path), text)
    return text
