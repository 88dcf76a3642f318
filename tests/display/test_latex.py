"""LaTeX and BibTeX: letters that a compiler knows, and a source for every measure."""

import re
import unicodedata

import pytest

from clip_geometry.display.explained import explain, title_of
from clip_geometry.display.table import Table, TableColumn, bibtex, escaped, in_math, latex, references
from clip_geometry.geometry import measures

NO_PAPER = {"modality_gap[cosine]"}  # the code of mteb


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("0.12", "0.12"),
        ("−0.12", "$-0.12$"),
        ("-0.12 ± 0.01", r"$-0.12 \pm 0.01$"),
        ("3.4 × 10⁻⁷", r"$3.4 \times 10^{-7}$"),
        ("0.25 [0.16, 0.37]", "0.25 [0.16, 0.37]"),
        ("-0.02 [-0.08, 0.05]", "$-0.02 [-0.08, 0.05]$"),
        ("<0.0001", "$<$0.0001"),
        ("–", "--"),
        ("tie", "tie"),
    ],
)
def test_numbers(number, expected):
    assert in_math(number) == expected


def test_every_title_and_source_has_letters_that_pdflatex_knows():
    """Beyond ASCII, utf8 of LaTeX has the letters of Latin alphabets, and no Greek ones, arrows or signs."""
    texts = [escaped(title_of(name, explain(name))) for name in measures]
    texts += [value for fields in references(measures).values() for value in fields.values()]
    for text in texts:
        assert all(sign.isascii() or "LATIN" in unicodedata.name(sign) for sign in text), text
        assert text.count("{") == text.count("}") and not re.search(r"(?<!\\)[&%#_]", text.replace("doi", "")), text


def test_every_measure_has_a_source_with_its_identifier():
    for name, measure in measures.items():
        entries = references([name])
        assert bool(entries) != (name in NO_PAPER), name
        written = "".join(value for fields in entries.values() for value in fields.values())
        for identifier in re.findall(r"(?:arXiv:|doi:)([^\s;,]+)", measure.reference):
            before = measure.reference.partition(identifier)[0]
            if re.search(r"\d{4}, (arXiv:|doi:)$", before):  # others are named without their authors
                assert identifier in written, name


def test_keys_are_those_of_one_source_whatever_else_is_cited():
    together = references(measures)
    for name in measures:
        for key, fields in references([name]).items():
            assert together[key] == fields
    assert re.findall(r"^@misc{(.*),$", bibtex(measures), re.MULTILINE) == ["clip-geometry", *together]
    assert {"wang2020", "wang-isola2020", "radovanovic2010"} <= together.keys()


def test_names_from_a_file_are_text():
    """A set or a label can have any name."""
    name = r"\\input{x} $a$ 50% #1 & ~^_ {"
    written = latex(Table([TableColumn(name)], {"": [[name]]}), label="tab:x", measures=[], caption=[name])
    safe = written.replace(escaped(name), "")
    assert written.count(escaped(name)) == 3 and "input" not in safe and "50" not in safe
    assert r"\textbackslash{}input\{x\} \$a\$ 50\% \#1 \& \textasciitilde{}\^{}\_ \{" in written
