"""Repairs of a mixed index: maps of rows, calibrated scores, neighborhoods and fusions, with their common interface."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np

from clip_geometry import catalog
from clip_geometry.registry import InputError, Registry, instance, listed
from clip_geometry.rows.arguments import positive_number
from clip_geometry.search.relevance import Relevance
from clip_geometry.transforms import Affine
from clip_geometry.transforms.pipeline import Pipeline

if TYPE_CHECKING:
    from clip_geometry.search.repairs.neighborhoods import BankStatistic

Kind: TypeAlias = tuple[str, str]  # (modality of the query, modality of the item)
Sets: TypeAlias = Mapping[str, np.ndarray]
T = TypeVar("T")

ITEMS_AT_ONCE = 8192
SHARED = ("", "center[each]")  # pipelines that several repairs use
LOGIT_SCALE = 100.0  # as in OpenAI's CLIP models; the default


@dataclass(frozen=True, eq=False)
class Known:
    """Rows of an index on which a repair is fitted, and what is known about their relevance to each other.

    Every row is an item of the index and also a query.

    Args:
        rows: Modality → (n, d) rows of any length. Repairs that need unit rows normalize them.
        relevance: Which of these rows are relevant to each other, as a `Relevance`; None if unknown.
        logit_scale: Factor of the cosines in the model's softmax (logit scale). Repairs such as `posterior` use it if
            no pairs are known.
        kept: A dictionary in which repairs that are fitted on the same rows share intermediate results; None shares
            none.

    Raises:
        InputError: The rows are not matrices of one dimension, `relevance` belongs to other rows, or the scale is not
            positive.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> rows = {"image": np.eye(3), "text": np.eye(3)}
        >>> known = cg.search.Known(rows, cg.search.Relevance.of_labels(image=range(3), text=range(3), within=False))
        >>> known.grades(("image", "text")).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
        >>> known.grades(("image", "image")) is None  # pairs do not say which images resemble each other
        True
    """

    rows: Sets
    relevance: Relevance | None = None
    logit_scale: float = LOGIT_SCALE
    kept: dict[Any, Any] | None = None

    def __post_init__(self):
        rows = instance(self.rows, Mapping, "rows", "a mapping of modality → (n, d) rows")
        instance(self.relevance, Relevance | None, "relevance", "a Relevance")
        shapes = {name: np.shape(x) for name, x in rows.items()}
        if {len(shape) for shape in shapes.values()} != {2} or len({shape[1] for shape in shapes.values()}) > 1:
            given = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise InputError(f"known rows have the shapes {given or 'none'}; expected (n, d) with one d for all")
        positive_number(self.logit_scale, "logit_scale", of=", such as 100")
        sizes = {name: len(x) for name, x in self.rows.items()}
        if self.relevance is not None and self.relevance.sizes != sizes:
            known = listed(f"{n} {name}" for name, n in self.relevance.sizes.items())
            given = listed(f"{n} {name}" for name, n in sizes.items())
            raise InputError(f"relevance is of {known} rows, but {given} rows were given; expected the same rows")

    @property
    def modalities(self) -> list[str]:
        """The names of the modalities, in alphabetical order."""
        return sorted(self.rows)

    @property
    def kinds(self) -> Iterable[Kind]:
        """All combinations of a query modality and an item modality."""
        return product(self.modalities, self.modalities)

    def view(self, pipeline: str) -> "RepairView":
        """Return the map `normalize, pipeline, normalize`, fitted on the known rows, for queries and items."""

        def fitted() -> RepairView:
            steps = ",".join(filter(None, ("normalize", pipeline, "normalize")))
            affine = Pipeline(steps).fit(self.rows, self.pairs).affine
            maps = {name: affine(name) for name in self.rows}
            return RepairView(maps, {} if self.kept is not None and pipeline in SHARED else None)

        return cached(self.kept, ("view", pipeline), fitted)

    def grades(self, kind: Kind) -> np.ndarray | None:
        """Return the relevance of each item to each row as a query, (n, m) of 0 and 1; None if it is unknown.

        `kind` is (modality of the queries, modality of the items).
        """
        query, item = kind
        if self.relevance is None or (query == item and not self.relevance.within):
            return None
        return self.relevance.dense(query, item).astype(np.float64)

    def pairs(self, first: str, second: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the row numbers of all relevant pairs of two modalities."""
        grades = self.grades((first, second))
        if grades is None:
            raise InputError("no pairs or labels of both modalities were given")
        return np.nonzero(grades)  # pyright: ignore[reportReturnType] # two arrays, since grades is a matrix


class Repair:
    """Base class of the repairs of a mixed index, which make scores of different modalities comparable.

    `fit` fits the repair on `Known` rows, and `scores` returns the score of each item for each query, on one scale for
    items of all modalities. A subclass implements `scores` and, if there is something to fit, `_learn`. Its parameters
    are attributes of the same name.

    Attributes:
        name: For a class, its name in files. For a registered repair, its name with the variant in brackets, such as
            "posterior[centered]".
        memorizes: Whether scores differ between the rows of the fit and other rows, because the fitted repair contains
            some of its rows.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 50, 8))
        >>> repair = cg.search.make_repair("center").fit(cg.search.Known({"image": image, "text": text}))
        >>> isinstance(repair, cg.search.Repair), repair.scores("image", image[:2], "text", text).shape
        (True, (2, 50))
    """

    name: str = ""
    memorizes: bool = False

    def fit(self, known: Known) -> Self:
        """Fit the repair.

        Args:
            known: The rows on which to fit, and their relevance to each other.

        Returns:
            The repair itself.
        """
        self._learn(known)
        return self

    def _learn(self, known: Known) -> None: ...

    @abstractmethod
    def scores(self, query: str, q: np.ndarray, item: str, x: np.ndarray) -> np.ndarray:
        """Return the score of each item for each query, (n, m), higher first, on one scale for all modalities of items.

        Args:
            query: Modality of the queries.
            q: (n, d) queries.
            item: Modality of the items.
            x: (m, d) items.
        """

    def require(self, known: Iterable[str], *given: str) -> None:
        """Raise InputError if a given modality is not among those for which the repair was fitted."""
        known = sorted(known)
        for modality in given:
            if modality not in known:
                raise InputError(
                    f"{self.name} was fitted for {' and '.join(known)} rows, but {modality} rows were given"
                )

    def mixed(self, query: str, q: np.ndarray, items: Sets, itself: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Return the scores of all items of a mixed index by modality.

        Args:
            query: Modality of the queries.
            q: (n, d) queries.
            items: Modality → (m, d) items.
            itself: (n,) the number of each query among the items of its modality, whose score becomes −∞; None if the
                queries are not items.
        """
        scores = {item: self.scores(query, q, item, x) for item, x in items.items()}
        if itself is not None:
            scores[query][np.arange(len(q)), itself] = -np.inf
        return scores

    def save(self, path: str | Path) -> None:
        """Write the fitted repair as .safetensors (see `repair_file`), completely or not at all."""
        from clip_geometry.search.repairs.repair_file import write_repair

        write_repair(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> "Repair":
        """Read a file that `save` wrote; raise InputError for damaged files and for other files."""
        from clip_geometry.search.repairs.repair_file import read_repair

        return read_repair(Path(path))


def cached(cache: dict[Any, Any] | None, key: Any, make: Callable[[], T]) -> T:
    """Return cache[key], computing it with `make` if it is missing; without a cache, return the result of `make`."""
    if cache is None:
        return make()
    if key not in cache:
        cache[key] = make()
    return cache[key]


@dataclass(frozen=True, eq=False)
class RepairView:
    """Maps that are applied to the rows before an inner product.

    Args:
        maps: Modality → the map of its rows.
        kept: A cache of mapped rows and their products, for several repairs that score the same rows; None for no
            cache.
    """

    maps: Mapping[str, Affine]
    kept: dict[Any, Any] | None = None

    def rows(self, modality: str, x: np.ndarray) -> np.ndarray:
        """Return rows of a modality after its map."""
        affine = self.maps[modality]
        mapped, _ = cached(self.kept, (id(affine), id(x)), lambda: (affine(x), x))  # keep x, so its id stays its own
        return mapped

    def products(self, query: str, q: np.ndarray, item: str, x: np.ndarray) -> np.ndarray:
        """Return the inner products of queries and items after the maps, (n, m); callers must not modify them."""
        q, x = self.rows(query, q), self.rows(item, x)
        return cached(self.kept, (id(q), id(x), "products"), lambda: q @ x.T)


class Term(NamedTuple):
    """Score of one kind before its biases: slope · ⟨query, item⟩ + offset, with rows after a view."""

    view: int
    slope: float = 1.0
    offset: float = 0.0


class InnerProduct(Repair):
    """A repair whose score is one inner product of extended rows, so that any vector index can serve it.

    For a query of modality a and an item of modality m,

        score = slope[a, m] ⟨q', x'⟩ + offset[a, m] + b[a, m](x') + c[a, m](q'),

    where ' denotes the view of the kind (a, m), and b and c are statistics relative to a bank of rows, or 0. `item_map`
    and `query_map` in `shipping` write the score as one inner product. Its rows have, for each view, as many copies of
    the row as the rank of the slopes; one dimension for each query modality (offset and b); and, if there is a c, one
    dimension for each item modality.

    Attributes:
        views_: The views before the products.
        terms_: Kind → its `Term`.
    """

    views_: Sequence[RepairView]
    terms_: Mapping[Kind, Term]

    def item_statistic(self, query: str, item: str) -> "BankStatistic | None":
        """Return b, a statistic of items after the view; None for 0."""

    def query_statistic(self, query: str, item: str) -> "BankStatistic | None":
        """Return c, a statistic of queries after the view; None for 0."""

    def scores(self, query: str, q: np.ndarray, item: str, x: np.ndarray) -> np.ndarray:
        term = self.term(query, item)
        view = self.views_[term.view]
        b = self.item_statistic(query, item)
        c = self.query_statistic(query, item)
        at_once = ITEMS_AT_ONCE if view.kept is None else max(1, len(x))  # items after the view are float64
        scores = np.empty((len(q), len(x)))
        for start in range(0, len(x), at_once):
            items = x[start : start + at_once] if at_once < len(x) else x
            block = scores[:, start : start + at_once]
            np.multiply(view.products(query, q, item, items), term.slope, out=block)
            if term.offset:
                block += term.offset
            if b is not None:
                block += b(view.rows(item, items))
        if c is not None:
            scores += c(view.rows(query, q))[:, None]
        return scores

    @property
    def modalities(self) -> list[str]:
        return sorted({query for query, _ in self.terms_})

    def term(self, query: str, item: str) -> Term:
        """Return the term of a kind; raise InputError before `fit` and for unknown modalities."""
        if not hasattr(self, "terms_"):
            raise InputError(f"{self.name} is not fitted yet; call fit first")
        self.require({name for name, _ in self.terms_}, query, item)
        return self.terms_[query, item]

    def copies(self) -> list[tuple[int, dict[str, float], dict[str, float]]]:
        """Return the copies of rows: for each the view, and the weights for queries and for items of each modality."""
        names = self.modalities
        copies = []
        for v in range(len(self.views_)):
            terms = [[self.terms_[query, item] for item in names] for query in names]
            slopes = np.array([[term.slope if term.view == v else 0.0 for term in row] for row in terms])
            left, sizes, right = np.linalg.svd(slopes)
            for k in np.flatnonzero(sizes > 1e-12 * max(sizes[0], 1e-300)):
                largest = right[k][np.abs(right[k]).argmax()]  # if all slopes are equal, items keep their length
                for_queries = dict(zip(names, largest * sizes[k] * left[:, k], strict=True))
                for_items = dict(zip(names, right[k] / largest, strict=True))
                copies.append((v, for_queries, for_items))
        return copies


@dataclass(frozen=True)
class RepairEntry:
    """A registered repair: its name, its class, and its description from catalog.yaml."""

    name: str
    kind: type[Repair]
    summary: str
    formula: str
    reference: str = ""
    reranker: bool = False
    baseline: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def make(self) -> Repair:
        """Return a new repair, not yet fitted."""
        repair = self.kind(**self.parameters)
        repair.name = self.name
        return repair


repairs: Registry[RepairEntry] = Registry("repair", "clip-geometry list repairs")


def make_repair(name: str) -> Repair:
    """Create a repair of a mixed index by its name. It is not fitted yet.

    Args:
        name: Name of the repair, such as "posterior"; `clip-geometry list repairs` prints all names.

    Returns:
        The `Repair`.

    Raises:
        InputError: The name is unknown.

    Example:
        >>> import numpy as np, clip_geometry as cg
        >>> image, text = np.random.default_rng(0).normal(size=(2, 50, 8))
        >>> relevance = cg.search.Relevance.of_labels(image=range(50), text=range(50), within=False)
        >>> repair = cg.search.make_repair("zscore").fit(cg.search.Known({"image": image, "text": text}, relevance))
        >>> scores = repair.scores("image", image, "text", text)
        >>> bool(abs(scores.mean()) < 1e-9), bool(abs(scores.std() - 1) < 1e-9)
        (True, True)
    """
    return repairs[name].make()


for _name, _entry in catalog.read(Path(__file__).parent).items():
    _module, _, _class = _entry["kind"].partition(".")
    _kind = getattr(import_module(f"{__name__}.{_module}"), _class)
    repairs.add(_name, RepairEntry(**{**_entry, "name": _name, "kind": _kind}))
