"""A public name without a page would only fail where the site is built, minutes later."""

from support.generated import generated
from support.public import HOMES, SUBPACKAGES


def test_every_public_name_is_in_the_reference():
    text = "\n".join(generated("api/").values())
    for home, package in HOMES.items():
        for name in dir(package):
            if name not in (*SUBPACKAGES, "__version__"):
                assert text.count(f"::: {home.replace('cg', 'clip_geometry', 1)}.{name}\n") == 1, name
