"""A fitted compressor: a cut with a number type, for rows of every modality, and its file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from clip_geometry.paths import expanded
from clip_geometry.registry import InputError, instance, shown
from clip_geometry.rows.matrix import unit_array
from clip_geometry.search.compression.codecs import CODECS, Codec, codec
from clip_geometry.search.compression.cuts import Cut
from clip_geometry.tokens import TokenRows
from clip_geometry.transforms import Affine
from clip_geometry.transforms.map_file import read_facts, write_facts

KEY = "clip_geometry_compressor"
TINY = np.float32(1e-30)


class Compressor:
    """Stores rows as codes, and scores queries against them; made by `Compression.fit`.

    Attributes:
        cut, columns, dtype: As in `Compression.frame`.
        maps: Modality of the items → the map of items and queries before the codes.
        codecs: Modality of the items → the number type with its ranges.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 200, 16))
        >>> compressor = cg.compress(image, text).fit(dtype="int8")
        >>> codes = compressor.encode(image, "image")
        >>> codes.dtype, codes.shape
        (dtype('int8'), (200, 16))
        >>> compressor.scores(text[:5], codes, "image").shape
        (5, 200)
    """

    def __init__(self, cut: Cut, dtype: str, maps: Mapping[str, Affine], codecs: Mapping[str, Codec]):
        self.cut, self.columns = instance(cut, Cut, "cut", "a Cut")
        self.dtype = codec(dtype).name
        self.maps = dict(instance(maps, Mapping, "maps", "modality → Affine"))
        self.codecs = dict(instance(codecs, Mapping, "codecs", "modality → Codec"))

    def __repr__(self) -> str:
        return f"<Compressor: {self.cut}, {self.columns} columns, {self.dtype}, for {' and '.join(self.maps)} rows>"

    def encode(self, rows: Any, modality: str) -> np.ndarray:
        """Return the codes of raw rows of the index, (n, columns), or (n, bytes) for packed bits.

        Args:
            rows: (n, d) rows of any length; only their direction is stored. Of `TokenRows`, the codes of all tokens are
                returned, one item after the other.
            modality: Modality of the rows.

        Raises:
            InputError: The modality or the dimension is not that of the fit, or a row has no direction.
        """
        return self.codecs[self._known(modality)].encode(self._mapped(rows, modality))

    def decode(self, codes: np.ndarray, modality: str) -> np.ndarray:
        """Return the float32 rows, (n, columns), that the codes of a modality stand for."""
        try:
            return self.codecs[self._known(modality)].decode(np.asarray(codes), self.columns)
        except (ValueError, TypeError, IndexError, AssertionError, AttributeError):
            raise InputError(f"the codes are {shown(codes)}; expected what encode returned") from None

    def scores(self, queries: Any, codes: np.ndarray, modality: str, lengths: Any = None) -> np.ndarray:
        """Return the score of each item for each query, (q, n), higher first.

        Args:
            queries: (q, d) raw queries, or `TokenRows`.
            codes: What `encode` returned for the items.
            modality: Modality of the items.
            lengths: (n,) numbers of tokens of the items, if they are `TokenRows`. The score is then MaxSim.
        """
        asked = self.codecs[self._known(modality)].queries(self._mapped(queries, modality))
        tokens = TokenRows(asked, queries.lengths if isinstance(queries, TokenRows) else None)
        return tokens.max_sim(TokenRows(self.decode(codes, modality), lengths))

    def save(self, path: str | Path) -> None:
        """Write the compressor as .safetensors, for `clip-geometry ship` and `cg.search.read_compressor`."""
        tensors: dict[str, np.ndarray] = {}
        for name, view in self.maps.items():
            tensors |= {f"{name}.W": view.W}
            tensors |= {f"{name}.{key}": array for key, array in self.codecs[name].learned.items()}
        renormalise = next(iter(self.maps.values())).renormalise
        facts = {"cut": self.cut, "columns": self.columns, "dtype": self.dtype, "renormalise": renormalise}
        write_facts(expanded(path), KEY, {**facts, "modalities": list(self.maps)}, tensors)

    def _known(self, modality: str) -> str:
        if modality not in self.maps:
            raise InputError(f"the compressor was fitted for {' and '.join(self.maps)} rows, not {shown(modality)}")
        return modality

    def _mapped(self, rows: Any, modality: str) -> np.ndarray:
        view = self.maps[self._known(modality)]
        unit = np.asarray(unit_array(rows.rows if isinstance(rows, TokenRows) else rows))
        if unit.shape[1] != len(view.W):
            raise InputError(f"rows have {unit.shape[1]} columns; the compressor was fitted on {len(view.W)}")
        return mapped(view, unit.astype(np.float32))


def mapped(view: Affine, rows: np.ndarray) -> np.ndarray:
    """Return float32 unit rows after a cut, in float32; rows that are zero in the stored columns stay zero."""
    cut = rows if view.identity else rows @ view.W.astype(np.float32)
    return cut / np.maximum(np.linalg.norm(cut, axis=1, keepdims=True), TINY) if view.renormalise else cut


class _Facts(BaseModel):
    format: int
    version: str
    cut: str
    columns: int
    dtype: str
    renormalise: bool
    modalities: list[str]


def read_compressor(path: str | Path) -> Compressor:
    """Read a file that `Compressor.save` wrote.

    Args:
        path: The .safetensors file.

    Returns:
        The compressor.

    Raises:
        InputError: The file is missing, damaged, of another format or something else.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 200, 16))
        >>> cg.compress(image, text).fit(dtype="binary").save("compressor.safetensors")
        >>> cg.search.read_compressor("compressor.safetensors")
        <Compressor: all, 16 columns, binary, for image and text rows>
    """
    return read_facts(expanded(path), KEY, _Facts, _from, what="compressor", writer="Compressor.save")


def _from(facts: _Facts, tensors: Mapping[str, np.ndarray]) -> Compressor:
    if facts.dtype not in CODECS or not facts.modalities:
        raise InputError(f"no number type is called {shown(facts.dtype)}")
    maps, codecs = {}, {}
    for name in facts.modalities:
        weights = tensors[f"{name}.W"]
        maps[name] = Affine(weights, np.zeros(facts.columns), renormalise=facts.renormalise, unit_rows_in=True)
        codecs[name] = codec(facts.dtype)
        for key in codecs[name].names:
            setattr(codecs[name], key, tensors[f"{name}.{key}"].astype(np.float32))
    compressor = Compressor(Cut(facts.cut, facts.columns), facts.dtype, maps, codecs)
    for name, view in maps.items():  # two rows, to detect inconsistent parts on loading
        rows = np.linspace(1, 2, 2 * len(view.W)).reshape(2, -1)
        scores = compressor.scores(rows, compressor.encode(rows, name), name)
        if scores.shape != (2, 2) or not np.isfinite(scores).all():
            raise InputError(f"it has no scores of {name} rows")
    return compressor
