"""Two profiles: 1,000 examples, the same each time, in every run; fifty times as many under `pytest -m fuzz`.

Each folder of fuzzing tests takes this as its conftest. Of the large run each of two processes does half: `pytest -m
fuzz tests/fuzz/test_[afi]* tests/experiments/fuzz` and `pytest -m fuzz tests/fuzz/test_[cm]*`, each with
--hypothesis-seed=N to be repeated.
"""

import tempfile
from pathlib import Path

import jaxtyping
import pytest
from hypothesis import HealthCheck, Phase, configuration, settings

configuration.set_hypothesis_home_dir(Path(tempfile.gettempdir(), "hypothesis"))  # not into the repository
COMMON = {
    "database": None,
    "deadline": 60_000,  # ms; what is slower hangs
    "suppress_health_check": list(HealthCheck),
    "phases": (Phase.explicit, Phase.generate, Phase.shrink),
}
# max_examples: by how much `fuzzed` multiplies the examples of a test
settings.register_profile("few", max_examples=1, derandomize=True, **COMMON)
settings.register_profile("many", max_examples=50, print_blob=True, **COMMON)


def pytest_configure(config):
    settings.load_profile("many" if config.option.markexpr == "fuzz" else "few")


def mark(items, folder):
    """Marks the tests of a folder and gives them time for their examples."""
    for item in items:
        if folder in item.path.parents:
            item.add_marker(pytest.mark.fuzz)
            item.add_marker(pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning"))  # long reprs
            item.add_marker(pytest.mark.timeout(300 * settings.default.max_examples))


@pytest.fixture(autouse=True, scope="module")
def without_types():
    """What users get: the type checker that tests/conftest.py installs answers first, in sentences of its own."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
