"""The ledger files: complete, exclusive, strict; and what they name exists."""

import itertools
from pathlib import Path

import pytest

from clip_geometry.config import read_yaml, validate
from clip_geometry.geometry import measures
from clip_geometry.registry import InputError
from clip_geometry_experiments.kit.base import experiments
from clip_geometry_experiments.published.comparing import matches
from clip_geometry_experiments.published.ledger import (
    Ledger,
    all_entries,
    entries,
    entries_of,
    papers,
    published,
)

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("paper", papers())
def test_every_published_number_has_a_config_or_a_reason(paper):
    found = entries(paper)
    assert len(found) == len(published(paper))
    assert [entry.published.path for entry in found if not (entry.rule.config or entry.rule.reason)] == []


@pytest.mark.parametrize("paper", papers())
def test_every_config_exists_and_its_run_has_the_name(paper):
    for config in sorted({config for entry in entries(paper) for config in entry.rule.config}):
        file = ROOT / "configs" / f"{config}.yaml"
        assert file.exists(), config
        assert read_yaml(file)["name"] == config.replace("/", "-")


def test_every_selected_measure_exists():
    named = {variant.where["measure"] for entry in all_entries() if entry.runs for variant in entry.variants}
    assert len(named) > 10
    of_isotropy = {
        "isotropy_i1[random]",
        "isotropy_i2[random]",
        "isotropy_i2[mean]",
    }  # experiments/tyshchuk2023/isotropy.py
    explained = {name for kind in experiments.values() for name in kind.explanations}
    assert named - {*measures} - of_isotropy <= explained
    assert {"classify.pearson", "stability.bias", "finetune.performance"} <= named & explained


def test_what_was_online_says_what_it_needs():
    for entry in all_entries():
        if entry.rule.config and entry.published.reach == "online":
            assert entry.rule.needs, entry.published.path
            assert entry.command.startswith("clip-geometry run configs/") or entry.rule.arguments is None


def made_up_rows(entry):
    """Flat rows that fulfil an entry, one for each way to."""
    for variant in entry.variants:
        ways = [
            [(key, each) for each in (wanted if isinstance(wanted, tuple) else (wanted,))]
            for key, wanted in variant.where.items()
        ]
        yield from (dict(way) for way in itertools.product(*ways))


def test_no_row_stands_beside_two_numbers_of_a_table():
    for entry in all_entries():
        beside = [other for other in all_entries() if other.published.section == entry.published.section]
        for row in made_up_rows(entry) if entry.runs else ():
            fields = {key: value for key, value in row.items() if value is not None}
            matched = {
                other.published.path
                for other in beside
                if set(other.runs) & set(entry.runs) and any(matches(fields, v.where) for v in other.variants)
            }
            assert matched == {entry.published.path}, row


def made(folder, paper, text):
    """Path → entry, by the rules in a text."""
    file = folder / "l.yaml"
    file.write_text(text)
    rules = validate(Ledger, read_yaml(file), "ledger l.yaml")
    return {entry.published.path: entry for entry in entries_of(paper, rules.sections)}


LEDGER = """
sections:
  table4_generalization:
    title: Table 4
    config: x/y
    match: [at.row]
    where: {measure: m}
    labels:
      known: {where: {at.half: known}}
"""


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("config: x/y", "confg: x/y", "ledger l.yaml: unknown key 'sections.table4_generalization.confg'"),
        ("table4_gen", "table5_gen", r"unknown section 'table5_generalization'; did you mean 'table4_generalization'"),
        ("known: {where", "knwon: {where", r"unknown label of table4_generalization 'knwon'; did you mean 'known'"),
        ("{where: {at.half: known}}", "{reson: none}", "unknown key .*reson"),
        ("config: x/y", "reason: none, {config: x/y}", "line"),
        ("config: x/y", "config: x/y\n    reason: none", "needs either a config or a reason"),
        ("config: x/y", "cause: none", "needs either a config or a reason"),
        ("{measure: m}", "{at.split: test}", "CLIP.known selects no 'measure'"),
        ("{measure: m}", "{measure: {a: b}}", "where"),
        ("[at.row]", "at.row", "match"),
    ],
)
def test_a_mistake_in_a_ledger_is_a_clear_error(tmp_path, old, new, sentence):
    assert old in LEDGER
    with pytest.raises(InputError, match=sentence):
        made(tmp_path, "tyshchuk2023", LEDGER.replace(old, new))


def test_the_labels_of_a_number_select_its_rows(tmp_path):
    found = made(tmp_path, "tyshchuk2023", LEDGER)
    assert found["table4_generalization.LSTSQ.new"].variants[0].where == {"at.row": "LSTSQ", "measure": "m"}
    assert {entry.published.section for entry in found.values()} == {"table4_generalization"}
