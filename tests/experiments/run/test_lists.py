"""What `clip-geometry list` has of this package and of others: names, and the fields of configs."""

from importlib.metadata import EntryPoint

from clip_geometry.cli.lists import configured
from clip_geometry.data import datasets
from clip_geometry_experiments.kit.base import experiments
from clip_geometry_experiments.run import lists
from clip_geometry_experiments.tasks import tasks


def fields(config):
    return ", ".join(key for key in config.model_fields if key != "name")


def test_the_catalogs_are_those_of_the_registries():
    sets = {name: each for name, each in datasets.items() if not each.config.__module__.startswith("clip_geometry.")}
    del sets["task"]  # which is a list of its own
    for folder, members in (("kit", sets), ("tasks", tasks)):
        found = {entry.name: entry.below for entry in configured(lists.PACKAGE / folder, "options")}
        assert found == {name: (f"options: {fields(each.config)}",) for name, each in members.items()}
    found = {entry.name: entry.below for entry in configured(lists.PACKAGE, "keys")}
    assert found == {name: (f"keys: {', '.join(each.Config.model_fields)}",) for name, each in experiments.items()}


def test_an_experiment_of_another_package_is_listed_with_its_keys(monkeypatch):
    toy = EntryPoint("toy", "support.toy", "clip_geometry.experiments")
    monkeypatch.setattr(lists, "entry_points", lambda group: [toy])
    monkeypatch.setitem(experiments.homes, "toy", toy.value)  # pyright: ignore[reportArgumentType]
    name, says, below, *_ = [*lists.shipped()["experiments"]()][-1]
    assert (name, says) == ("toy", "the average cosine of a Gaussian whose mean moves away from 0")
    assert below == ("keys of its config: name, experiment, title, description, seed, shifts, n, d",)
    experiments._members.pop("toy", None)
