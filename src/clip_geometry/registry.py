"""Registries of named members and helpers for error messages. No dependencies."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any, Generic, TypeVar

T = TypeVar("T")
# libraries whose versions can change a result
LIBRARIES = ("clip-geometry", "torch", "torchvision", "open_clip_torch", "transformers", "numpy", "pillow")
MOST = 400  # maximum length of a message in characters


class InputError(ValueError):
    """Error in the user's input. Its message is one sentence: what was given, what was expected and what to do.

    The message is a single printable line of at most 400 characters, even if it quotes longer input. The command line
    prints it and exits with status 2. Any other exception is a bug of this package and keeps its traceback.

    Args:
        sentence: The message.

    Example:
        >>> import clip_geometry as cg
        >>> cg.geometry.isoscore([[1.0, 2.0]])
        Traceback (most recent call last):
            ...
        clip_geometry.registry.InputError: x has 1 row; expected at least 2
    """

    def __init__(self, sentence: str):
        super().__init__(shortened(printable(sentence), MOST))


def shortened(text: str, limit: int) -> str:
    """Shorten `text` to at most `limit` characters by leaving out its middle."""
    return text if len(text) <= limit else f"{text[: limit // 3]}…{text[limit // 3 + 1 - limit :]}"


def printable(text: str) -> str:
    """Return `text` as one line, with the characters that a terminal interprets (control, bidirectional) escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shown(value: Any, limit: int = 80) -> str:
    """Format `value` for an error message: one printable line of at most `limit` characters, without memory addresses.

    A path is not quoted and may be twice as long.
    """
    is_path = hasattr(value, "__fspath__")
    try:
        text = str(value) if is_path else repr(value)
    except Exception:  # a foreign __repr__ may raise anything
        text = f"<{type(value).__name__}>"
    text = printable(re.sub(r" at 0x[0-9a-fA-F]+", "", text))
    return shortened(text, 2 * limit if is_path else limit)


def instance(value: Any, kind: Any, name: str, expected: str) -> Any:
    """Return the value, or raise InputError if it has another type.

    Args:
        value: The value to check.
        kind: The expected type, or a union of types.
        name: Name of the argument, for the error message.
        expected: The expected type in words, such as "a MixedIndex".
    """
    is_scalar = getattr(value, "shape", None) == () and not isinstance(value, str)  # NumPy's only claim to be iterable
    if is_scalar or not isinstance(value, kind):
        raise InputError(f"{name} = {shown(value)}; expected {expected}")
    return value


def names_in(value: Any, name: str) -> list[str]:
    """Return the names in a comma-separated text or in any collection of texts, or raise InputError.

    Args:
        value: The value to read.
        name: Name of the argument, for the error message.
    """
    texts = [value] if isinstance(value, str) else instance(value, Iterable, name, "names")
    return [part for text in texts for part in parts(instance(text, str, f"a name in {name}", "text"))]


def listed(names: Iterable[object], limit: int = 6) -> str:
    """List the first `limit` names, printable and shortened, and the number of the others; "none" if there are none."""
    texts = [printable(str(name)) for name in names]
    first = ", ".join(text if len(text) <= 40 else f"{text[:40]}…" for text in texts[:limit]) or "none"
    return first if len(texts) <= limit else f"{first} and {len(texts) - limit} more"


def parts(text: str) -> list[str]:
    """Split `text` at the commas that are not inside brackets."""
    return [part.strip() for part in re.split(r",(?![^(\[]*[)\]])", text) if part.strip()]


def did_you_mean(name: str, known: Iterable[str], *, listed_by: str | None = None) -> str:
    """Return a suggestion to append to an error about an unknown name.

    It reads `"; did you mean 'isoscore'?"`, or is "" if no known name is similar.

    Args:
        name: The unknown name.
        known: All known names.
        listed_by: The command that lists the known names. If given, the suggestion has up to three similar names and
            this command, or all names if there are few.
    """
    folded = {candidate.casefold(): candidate for candidate in known}
    unknown_name = name[:100].casefold()
    close = get_close_matches(unknown_name, folded, n=3, cutoff=0.6)
    # names that contain the unknown one, such as "gap" or "retrieval", which is too short to be a close match
    containing = [candidate for candidate in folded if len(unknown_name) > 2 and unknown_name in candidate]
    near = [folded[candidate] for candidate in dict.fromkeys((*close, *containing))][:3]
    if listed_by is None:
        return f"; did you mean {near[0]!r}?" if near else ""
    if near:
        return f"; did you mean {' or '.join(map(repr, near))}? ({listed_by} names all)"
    names = ", ".join(sorted(folded.values()))
    return f"; known are {names}" if len(names) <= 100 else f"; {listed_by} names all {len(folded)}"


def unknown(kind: str, name: object, known: Iterable[str], listed_by: str) -> InputError:
    """Return the error for a name that is not registered."""
    return InputError(f"unknown {kind} {shown(name)}{did_you_mean(str(name), known, listed_by=listed_by)}")


def library(module: str, package: str, what: str) -> Any:
    """Import an optional library that `what` needs; if it is not installed, raise InputError with its package name."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise InputError(f"{what} needs {package}, which is not installed: pip install {package}") from None


@dataclass(eq=False, repr=False)
class Registry(Mapping[str, T], Generic[T]):
    """A mapping of names to members of one kind, each registered once. Unknown names raise InputError.

    Args:
        kind: What a member is, e.g. "measure", for error messages.
        listed_by: The command that lists all names.
        homes: Name → module that registers it. The module is imported when the name is looked up.
        more: Modules that register members whose names are not known in advance. They are imported when a name is not
            found and when all members are requested.

    Example:
        >>> shapes = Registry("shape")
        >>> shapes.add("square", 4)
        4
        >>> shapes["square"], "circle" in shapes
        (4, False)
    """

    kind: str
    listed_by: str = "the documentation"
    homes: Mapping[str, str] = field(default_factory=dict)
    more: Sequence[str] = ()
    _members: dict[str, T] = field(default_factory=dict, init=False)

    def add(self, name: str, member: T) -> T:
        home = self.homes.get(name)
        if name in self._members or (home and not getattr(member, "__module__", home).startswith(home)):
            raise ValueError(f"{self.kind} {name!r} is registered twice")
        self._members[name] = member
        return member

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise unknown(self.kind, name, self, self.listed_by)
        if name not in self._members:
            import_module(self.homes[name])
            if name not in self._members:
                raise ValueError(f"{self.homes[name]} does not register the {self.kind} {name!r}")
        return self._members[name]

    # the methods of Mapping rely on KeyError, which __getitem__ does not raise
    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (
            name in self._members or name in self.homes or any(name == member for member in self)
        )

    def get(self, key: str, default: Any = None) -> Any:
        if key not in self:
            return default
        return self[key]

    def __iter__(self) -> Iterator[str]:
        for module in self.more:
            import_module(module)
        return iter(dict.fromkeys((*self.homes, *self._members)))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def of_packages(group: str) -> list[EntryPoint]:
    """Return the entry points of a group whose packages are importable; a checkout may lack one."""
    return [entry for entry in entry_points(group=group) if find_spec(entry.module.partition(".")[0]) is not None]


def import_all(package: str) -> None:
    """Import all modules of a package that is being imported, so that they register their members.

    Modules whose name begins with an underscore register nothing and are skipped.
    """
    for module in iter_modules(sys.modules[package].__path__):
        if not module.name.startswith("_"):
            name = f"{package}.{module.name}"
            import_module(name)
            if module.ispkg:
                import_all(name)


def library_versions() -> dict[str, str]:
    """Return name → version for the installed libraries whose versions can change a result."""
    versions = {}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions
