"""Sentences come from macros, with numbers as the report writes them; what a template does not know is an error."""

import pytest
from jinja2 import UndefinedError

from clip_geometry.display.words import Words, render

TEMPLATE = """
{# a comment #}
{% macro gap(first, last, null=none) %}
The gap falls from {{ first|fixed(2) }}
   to {{ last|brief }}{% if null is not none %}; chance is {{ null|percentage }}{% endif %}.
{% endmacro %}
{% macro nothing(value) %}{% if value %}something{% endif %}{% endmacro %}
{% macro parts(names, shares) %}
{{ names|listed }}: {{ shares|map("percent")|listed|sentence }}
{% endmacro %}
"""


@pytest.fixture
def words(tmp_path):
    file = tmp_path / "words.j2"
    file.write_text(TEMPLATE, encoding="utf-8")
    return Words(file)


def test_a_macro_is_a_sentence_of_single_blanks(words):
    assert words("gap", first=0.814, last=-0.0172) == "The gap falls from 0.81 to −0.017."
    assert words("gap", 1, 0.5, null=0.0125) == "The gap falls from 1.00 to 0.50; chance is 1.25%."
    assert words("nothing", 0) == "" and words("nothing", 1) == "something"
    assert words("parts", ["a", "b", "c"], [0.999, 0.5]) == "a, b and c: Over 99% and 50%"


def test_what_the_template_does_not_know_is_an_error(words):
    with pytest.raises(AttributeError):
        words("gaps")
    with pytest.raises(UndefinedError):
        words("parts", ["a"])


def test_a_page_keeps_its_lines(tmp_path):
    file = tmp_path / "page.md.j2"
    file.write_text("# {{ title }}\n\n{% for n in ns %}\n- {{ n|number }} <b>\n{% endfor %}\n", encoding="utf-8")
    assert render(file, title="T", ns=[0.25, None]) == "# T\n\n- 0.2500 <b>\n- – <b>\n"
