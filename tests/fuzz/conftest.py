"""See fuzz/profiles.py."""

from pathlib import Path

from fuzz.profiles import as_users_get_it, mark, pytest_configure  # noqa: F401 (pytest calls them)


def pytest_collection_modifyitems(items):
    mark(items, Path(__file__).parent)
