"""A public module without a topic would only fail where the site is built, minutes later."""

import clip_geometry
from support.generated import generated


def test_every_public_name_is_on_one_page_of_the_reference():
    text = "\n".join(generated("api/").values())
    for name in clip_geometry.__all__:
        assert text.count(f".{name}\n") == 1, name
