import pytest
import yaml

from clip_geometry_experiments.published.ledger import FILE, entries, papers


def leaves(value):
    """How many numbers and statements there are, by PyYAML's own reading."""
    if isinstance(value, dict):
        return sum(leaves(part) for key, part in value.items() if key != "reach")
    return sum(map(leaves, value)) if isinstance(value, list) else 1


@pytest.mark.parametrize("paper", ["tyshchuk2023", "mickus2024", "rudman2024", "cai2021"])
def test_every_leaf_is_there_with_its_value(paper):
    document = yaml.safe_load(FILE.read_text(encoding="utf-8"))[paper]
    tables = {name: part for name, part in document.items() if name not in ("title", "reference", "models")}
    found = entries(paper)
    assert len(found) == leaves(tables) > 5
    assert len({each.path for each in found}) == len(found)
    for each in found:
        value = tables[each.section]
        for key in each.keys:
            value = value[int(key)] if isinstance(value, list) else value[key]
        expected = value if isinstance(value, str) else float(value)
        assert (each.text if each.value is None else each.value) == expected, each.path


def test_four_papers_and_nothing_else():
    assert list(papers()) == ["tyshchuk2023", "mickus2024", "rudman2024", "cai2021"]  # also_known is no paper
    assert papers()["tyshchuk2023"].reference.endswith("doi:10.3390/info14070392")


def test_digits_are_those_printed():
    found = {each.path: each for each in entries("tyshchuk2023")}
    known = found["table4_generalization.CLIP.known"]
    assert (known.text, known.value, known.decimals) == ("66.40", 66.4, 2)
    assert found["table1_isotropy.centering.i2_text"].text == "0.00"
    assert found["text.tsne_perplexity.image"].decimals == 0
    assert found["text.lstsq_runtime"].value is None
