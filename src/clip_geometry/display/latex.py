"""Tables of numbers in LaTeX, with a title, and the BibTeX entries of what they cite."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import version

from clip_geometry.catalog import descriptions
from clip_geometry.display.explained import explain
from clip_geometry.display.table import Table
from clip_geometry.registry import printable

SOFTWARE = "clip-geometry"  # the key of the package itself
BIBLIOGRAPHY = f"@misc{{{SOFTWARE},"  # the beginning of the files of `bibtex`
_SIGNS = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\^{}", "±": r"$\pm$", "×": r"$\times$", "−": r"$-$",
    "<": "$<$", ">": "$>$", "→": r"$\to$", "↓": r"$\downarrow$", "↑": r"$\uparrow$",
    "·": r"$\cdot$", "∞": r"$\infty$", "–": "--", "…": r"\ldots{}",
    "α": r"$\alpha$", "κ": r"$\kappa$", "λ": r"$\lambda$", "Δ": r"$\Delta$", "“": "``", "”": "''",
}  # fmt: skip
_POWER = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_NAME = r"[^\W\d_a-z][\w'’-]*"
_CITED = re.compile(rf"({_NAME}(?: & {_NAME})?(?: et al\.)?) (\d{{4}})(?:, ([^;]+))?")


def escaped(text: str) -> str:
    """A text as LaTeX writes it."""
    return "".join(_SIGNS.get(sign, sign) for sign in printable(text))


def in_math(text: str) -> str:
    """A number as LaTeX writes it: $-0.02 \\pm 0.01$, $3.4 \\times 10^{-7}$; a word as it is."""
    if not re.match(r"[−-]?\d", text) or not any(sign in text for sign in "±×−-"):
        return escaped(text)
    text = re.sub("10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", lambda power: f"10^{{{power[1].translate(_POWER)}}}", text)
    for sign, command in (("−", "-"), ("±", r"\pm"), ("×", r"\times")):
        text = text.replace(sign, command)
    return f"${text}$"


def latex(found: Table, *, label: str, measures: Iterable[str], caption: Iterable[str] = ()) -> str:
    """Return a `table` with booktabs' rules, whose caption cites the package and the sources of the measures.

    Columns that may be left out on a narrow terminal are left out.

    Args:
        found: The table.
        label: What `\\ref` takes.
        measures: Names of the measures.
        caption: Sentences of the caption; by default the heading and the legend of the table.
    """
    shown = [k for k, column in enumerate(found.columns) if not column.spare]
    numbers = [found.columns[k].is_number for k in shown]

    def line(row: Sequence[str]) -> str:
        cells = (getattr(row[k], "full", row[k]) for k in shown)
        return " & ".join(in_math(cell) if right else escaped(cell) for cell, right in zip(cells, numbers, strict=True))

    groups = ("\n".join(line(row) + r" \\" for row in rows) for rows in (found.groups or {}).values() if rows)
    body = "\n\\addlinespace\n".join(groups)
    sentences = list(caption) or ["; ".join(found.heading), *found.legend]
    keys = list(references(measures))
    sources = rf", measures after~\cite{{{','.join(keys)}}}" if keys else ""
    said = escaped(" ".join(f"{sentence}." for sentence in sentences))
    return "\n".join(
        [
            "% needs booktabs; the entries that it cites are in BibTeX's file",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{said} Computed with clip-geometry~\cite{{{SOFTWARE}}}{sources}.}}",
            rf"\label{{{label}}}",
            rf"\begin{{tabular}}{{{''.join('r' if right else 'l' for right in numbers)}}}",
            r"\toprule",
            " & ".join(escaped(found.columns[k].heading) for k in shown) + r" \\",
            r"\midrule",
            *filter(None, [body]),
            r"\bottomrule",
            r"\end{tabular}",
            "\\end{table}\n",
        ]
    )


def bibtex(names: Iterable[str]) -> str:
    """The BibTeX entries of the package and of the sources of these measures.

    The sources have authors, year and identifier, which is what a measure's reference says.
    """
    own = {
        "title": "{clip-geometry}: measure, explain and change the geometry of multimodal embeddings",
        "author": "{The clip-geometry developers}",
        "note": f"Version {version('clip-geometry')}",
    }
    entries = {SOFTWARE: own} | references(names)
    return "\n".join(
        f"@misc{{{key},\n" + "".join(f"  {field} = {{{value}}},\n" for field, value in fields.items()) + "}\n"
        for key, fields in entries.items()
    )


def references(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Key → BibTeX's fields of each source of the measures, in their order; a source has one key in all tables."""
    known = map(explain, names)
    people = [found[:2] for each in known if each for found in _CITED.findall(each.reference)]
    return {_key(*each): _sources()[each] for each in people}


@cache
def _sources() -> dict[tuple[str, str], dict[str, str]]:
    """Authors and year → the fields, with the identifier where any measure names it."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for measure in descriptions.values():
        for people, year, where in _CITED.findall(measure.reference):
            fields = found.setdefault(
                (people, year),
                {"author": people.replace(" et al.", " and others").replace(" & ", " and "), "year": year},
            )
            kind, _, identifier = where.partition(":")
            identifier = re.split(r"[\s,]", identifier)[0]
            if kind == "arXiv":
                fields |= {"eprint": identifier, "archiveprefix": "arXiv"}
            elif kind == "doi":
                fields["doi"] = identifier
            elif where:
                fields.setdefault("howpublished", escaped(where.strip()))
    return found


def _key(people: str, year: str) -> str:
    """radovanovic2010, wang-isola2020."""
    plain = unicodedata.normalize("NFKD", people.removesuffix(" et al.")).encode("ascii", "ignore").decode()
    return "-".join(re.findall(r"[a-z]+", plain.lower())) + year
