"""Names to things, with an error that helps. No dependencies."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules
from typing import Generic, TypeVar

T = TypeVar("T")


class InputError(ValueError):
    """What the user gave is wrong: one sentence saying what was given, what was expected and what to do.

    The command line prints the sentence and exits with status 2; everything else is a bug and keeps its traceback.
    """


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`"; did you mean 'isoscore'?"`, or an empty string where nothing is near."""
    folded = {candidate.casefold(): candidate for candidate in known}
    near = get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""


class Registry(Mapping[str, T], Generic[T]):
    """A dictionary of one kind of thing ("measure", "data set", …) whose members are added once, under one name."""

    def __init__(self, kind: str):
        self.kind = kind
        self._members: dict[str, T] = {}

    def add(self, name: str, member: T) -> T:
        if name in self._members:
            raise ValueError(f"{self.kind} {name!r} is registered twice")
        self._members[name] = member
        return member

    def __getitem__(self, name: str) -> T:
        if name not in self._members:
            near = did_you_mean(name, self._members)
            hint = near or f"; known are {', '.join(sorted(self._members))}"
            raise InputError(f"unknown {self.kind} {name!r}{hint}")
        return self._members[name]

    # Mapping's own versions rely on KeyError, which __getitem__ does not raise
    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


def import_all(package: str) -> None:
    """Imports every module of a package that is being imported itself, so that each registers what it has."""
    for module in iter_modules(sys.modules[package].__path__):
        import_module(f"{package}.{module.name}")
