"""A public name without a page would only fail where the site is built, minutes later."""

import re
import sys
from importlib import import_module

from support.generated import generated
from support.public import HOMES, SUBPACKAGES


def test_every_public_name_is_in_the_reference_once():
    places = re.findall(r"^::: (\S+)\.(\w+)$", "\n".join(generated("api/").values()), re.M)
    names = [name for package in HOMES.values() for name in dir(package) if name not in (*SUBPACKAGES, "__version__")]
    assert sorted(name for _, name in places) == sorted(names)


def test_no_page_shows_a_module_in_place_of_a_function():
    """clip_geometry.geometry.hubness is a module for mkdocstrings, and a function for Python."""
    for page, text in generated("api/").items():
        for module, name in re.findall(r"^::: (\S+)\.(\w+)$", text, re.M):
            assert f"{module}.{name}" not in sys.modules, (page, name)
            assert hasattr(import_module(module), name), (page, name)
