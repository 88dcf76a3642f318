"""See fuzz/profiles.py."""

from pathlib import Path

from fuzz.profiles import mark, pytest_configure, without_types  # noqa: F401 (pytest calls them)
from support.encoder_files import *  # noqa: F403


def pytest_collection_modifyitems(items):
    mark(items, Path(__file__).parent)
