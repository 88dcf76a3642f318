"""Number types of stored rows: what each stores, how many bytes it takes, and which rows its codes stand for."""

from abc import ABC, abstractmethod
from importlib.util import find_spec
from inspect import get_annotations
from typing import Any, ClassVar, Self

import numpy as np

from clip_geometry.io.quantized import values_of_steps
from clip_geometry.registry import library
from clip_geometry.rows.arguments import one_of

LEVELS = np.float32(255)  # steps of int8
GROUP = 4  # columns of a code of product quantization
BITS = 4  # of each of these codes, so that a few hundred rows determine the 16 centroids


class Codec(ABC):
    """A number type. Rows are scored by the inner product of a query with the rows that their codes stand for.

    A subclass declares the arrays that `fit` learns.

    Attributes:
        name: Name of the type in tables and files.
        bits: Bits per column.
        least: Fewest rows to fit on.
    """

    name: ClassVar[str]
    bits: ClassVar[int]
    least: ClassVar[int] = 2

    @classmethod
    def suits(cls, columns: int) -> bool:
        """Return whether rows of so many columns can be stored."""
        return True

    def fit(self, rows: np.ndarray) -> Self:
        """Learn ranges, thresholds or centroids from float32 rows, (n, k)."""
        return self

    @abstractmethod
    def encode(self, rows: np.ndarray) -> np.ndarray:
        """Return the codes of float32 rows, (n, k)."""

    @abstractmethod
    def decode(self, codes: np.ndarray, columns: int) -> np.ndarray:
        """Return the float32 rows that the codes stand for, (n, k)."""

    def queries(self, rows: np.ndarray) -> np.ndarray:
        """Return queries in the form in which they are compared with decoded rows."""
        return rows

    @classmethod
    def bytes(cls, columns: int) -> int:
        """Return the bytes of a row."""
        return -(-columns * cls.bits // 8)

    @property
    def names(self) -> list[str]:
        """The names of the arrays that `fit` learns, which the class declares."""
        return [name for name, kind in get_annotations(type(self)).items() if kind is np.ndarray]

    @property
    def learned(self) -> dict[str, np.ndarray]:
        """The arrays that `fit` learned, by name."""
        return {name: getattr(self, name) for name in self.names}


class Float32(Codec):
    name, bits = "float32", 32

    def encode(self, rows: np.ndarray) -> np.ndarray:
        return rows.astype(np.float32)

    def decode(self, codes: np.ndarray, columns: int) -> np.ndarray:
        return codes.astype(np.float32)


class Float16(Float32):
    name, bits = "float16", 16

    def encode(self, rows: np.ndarray) -> np.ndarray:
        return rows.astype(np.float16)


class Int8Column(Codec):
    """255 steps between the minimum and the maximum of each column.

    The codes are those of FAISS (`ScalarQuantizer.QT_8bit`) and of `quantize_embeddings` in sentence-transformers, less
    128. Where a value is at the edge of a step, the latter two round differently; the codes are then those of FAISS.
    """

    name, bits = "int8[column]", 8
    low: np.ndarray
    width: np.ndarray

    def fit(self, rows: np.ndarray) -> Self:
        self.low = rows.min(0)
        self.width = rows.max(0) - self.low
        return self

    def encode(self, rows: np.ndarray) -> np.ndarray:
        steps = np.floor((rows - self.low) / np.where(self.width > 0, self.width, 1) * LEVELS)
        return (np.clip(steps, 0, 255) - 128).astype(np.int8)

    def decode(self, codes: np.ndarray, columns: int) -> np.ndarray:
        return values_of_steps(codes.astype(np.float32) + 128, self.low, self.width)


class Int8(Int8Column):
    """255 steps between the minimum and the maximum of all columns, as FAISS's `QT_8bit_uniform`."""

    name = "int8"
    low: np.ndarray
    width: np.ndarray

    def fit(self, rows: np.ndarray) -> Self:
        return super().fit(rows.reshape(-1, 1))


class Binary(Codec):
    """The signs of the columns, packed into bytes, for rows and queries, to be compared by their Hamming distance.

    The codes are those of `quantize_embeddings(…, "ubinary")` and of pgvector's `binary_quantize`.
    """

    name, bits = "binary", 1

    def encode(self, rows: np.ndarray) -> np.ndarray:
        return np.packbits(rows > 0, axis=1)

    def decode(self, codes: np.ndarray, columns: int) -> np.ndarray:
        return np.unpackbits(codes, axis=1, count=columns).astype(np.float32) * 2 - 1

    def queries(self, rows: np.ndarray) -> np.ndarray:
        return np.where(rows > 0, np.float32(1), np.float32(-1))


class BinaryCentered(Binary):
    """The signs of the columns after their mean is subtracted; queries stay floats.

    A bit stands for the mean of its column, plus or minus the mean distance from it.
    """

    name, bits = "binary[centered]", 1
    mean: np.ndarray
    distance: np.ndarray

    def fit(self, rows: np.ndarray) -> Self:
        self.mean = rows.mean(0)
        self.distance = np.abs(rows - self.mean).mean(0)
        return self

    def encode(self, rows: np.ndarray) -> np.ndarray:
        return super().encode(rows - self.mean)

    def decode(self, codes: np.ndarray, columns: int) -> np.ndarray:
        return self.mean + super().decode(codes, columns) * self.distance

    def queries(self, rows: np.ndarray) -> np.ndarray:
        return rows


class ProductQuantization(Codec):
    """The nearest of 16 centroids for every four columns, by FAISS."""

    name, bits, least = "pq", 1, 39 * 2**BITS  # fewer rows are too few for FAISS
    centroids: np.ndarray

    @classmethod
    def suits(cls, columns: int) -> bool:
        return columns % (2 * GROUP) == 0 and find_spec("faiss") is not None

    def _quantizer(self, columns: int) -> Any:
        faiss = library("faiss", "faiss-cpu", "product quantization")
        return faiss.ProductQuantizer(columns, columns // GROUP, BITS)

    def fit(self, rows: np.ndarray) -> Self:
        import faiss

        quantizer = self._quantizer(rows.shape[1])
        quantizer.train(np.ascontiguousarray(rows))
        self.centroids = faiss.vector_to_array(quantizer.centroids)
        return self

    def encode(self, rows: np.ndarray) -> np.ndarray:
        import faiss

        quantizer = self._quantizer(rows.shape[1])
        faiss.copy_array_to_vector(self.centroids, quantizer.centroids)
        return quantizer.compute_codes(np.ascontiguousarray(rows, dtype=np.float32))

    def decode(self, codes: np.ndarray, columns: int) -> np.ndarray:
        centroids = self.centroids.reshape(columns // GROUP, 2**BITS, GROUP)
        nearest = np.stack([codes & 15, codes >> 4], axis=2).reshape(len(codes), -1)  # the low bits come first
        return centroids[np.arange(nearest.shape[1]), nearest].reshape(len(codes), columns)


CODECS: dict[str, type[Codec]] = {
    kind.name: kind for kind in (Float32, Float16, Int8, Int8Column, Binary, BinaryCentered, ProductQuantization)
}


def codec(name: str) -> Codec:
    """Return an unfitted codec by its name."""
    return CODECS[one_of(name, "dtype", CODECS)]()
