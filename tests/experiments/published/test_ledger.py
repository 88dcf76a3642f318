"""The ledger files: complete, exclusive, strict; and what they name exists."""

import itertools
from pathlib import Path

import pytest

from clip_geometry.config import read_yaml
from clip_geometry.geometry import measures
from clip_geometry_experiments.kit.base import experiments
from clip_geometry_experiments.published.comparing import matches
from clip_geometry_experiments.published.ledger import all_entries, entries, ledger, papers

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("paper", papers())
def test_every_published_number_has_a_config_or_a_reason(paper):
    found = entries(paper)
    assert len(found) == len(entries(paper))
    for entry in found:
        assert bool(entry.rule.config) != bool(entry.rule.reason), entry.path
        assert not entry.rule.config or all("measure" in variant.where for variant in entry.variants)


@pytest.mark.parametrize("paper", papers())
def test_sections_and_labels_are_published_ones(paper):
    sections = ledger(paper).sections
    assert sections.keys() == {each.section for each in entries(paper)}
    for name, section in sections.items():
        labels = {key for each in entries(paper) if each.section == name for key in each.keys}
        assert {*section.labels, *section.names} <= labels, name


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
        if entry.rule.config and entry.reach == "online":
            assert entry.rule.needs, entry.path
            assert entry.command.endswith("--published"), entry.path


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
        beside = [other for other in all_entries() if other.section == entry.section]
        for row in made_up_rows(entry) if entry.runs else ():
            fields = {key: value for key, value in row.items() if value is not None}
            matched = {
                other.path
                for other in beside
                if set(other.runs) & set(entry.runs) and any(matches(fields, v.where) for v in other.variants)
            }
            assert matched == {entry.path}, row
