import pytest

from support.embed_fakes import installer


@pytest.fixture
def loader(monkeypatch):
    return installer(monkeypatch)
