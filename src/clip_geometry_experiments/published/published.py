"""Every number printed in the papers, from published.yaml, with its printed digits."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from clip_geometry.config import read_yaml
from clip_geometry.registry import InputError, did_you_mean

FILE = Path(__file__).parent / "published.yaml"
ABOUT_PAPER = ("title", "reference", "models")  # keys of a paper that are not tables


@dataclass(frozen=True)
class Paper:
    name: str
    title: str
    reference: str


@dataclass(frozen=True)
class Published:
    """One number, or statement.

    Args:
        paper: Name of the paper.
        section: Its table.
        keys: The labels of the number, row first.
        text: The number as printed.
        value: Its value, None for words.
        reach: What is needed to check it ("real", "proxy", "online"), "" where the file does not say.
    """

    paper: str
    section: str
    keys: tuple[str, ...]
    text: str
    value: float | None
    reach: str = ""

    @property
    def path(self) -> str:
        return ".".join((self.section, *self.keys))

    @property
    def shown(self) -> str:
        """As printed, a number with a typographic minus."""
        return self.text if self.value is None else self.text.replace("-", "−")

    @property
    def decimals(self) -> int:
        """Printed decimals: 2 of 66.40."""
        return len(self.text.partition(".")[2])


@cache
def papers() -> dict[str, Paper]:
    """The papers with numbers, in the order of the file."""
    found = read_yaml(FILE)
    return {
        name: Paper(name, part["title"], part["reference"])
        for name, part in found.items()
        if isinstance(part, dict) and "title" in part
    }


@cache
def published(paper: str) -> tuple[Published, ...]:
    """Every leaf of a paper's tables; positions in a list are "0", "1", …"""
    if paper not in papers():
        hint = did_you_mean(paper, papers()) or f"; known are {', '.join(papers())}"
        raise InputError(f"unknown paper {paper!r}{hint}")
    root = yaml.compose(FILE.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)  # nodes keep 0.00 as it is printed
    sections = dict(_items(dict(_items(root))[paper]))
    return tuple(
        Published(paper, section, *leaf)
        for section, node in sections.items()
        if section not in ABOUT_PAPER
        for leaf in _leaves(node, (), "")
    )


def _leaves(
    node: yaml.Node, keys: tuple[str, ...], reach: str
) -> Iterator[tuple[tuple[str, ...], str, float | None, str]]:
    if isinstance(node, yaml.ScalarNode):
        number = node.tag.endswith((":float", ":int"))
        yield keys, node.value, float(node.value) if number else None, reach
        return
    children = dict(_items(node))
    here = children.pop("reach", None)
    reach = here.value if isinstance(here, yaml.ScalarNode) else reach
    for key, child in children.items():
        yield from _leaves(child, (*keys, key), reach)


def _items(node: yaml.Node) -> Iterator[tuple[str, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        yield from ((key.value, child) for key, child in node.value)
    elif isinstance(node, yaml.SequenceNode):
        yield from ((str(place), child) for place, child in enumerate(node.value))
