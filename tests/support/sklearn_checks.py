"""The checks of scikit-learn on an estimator, with those that are expected to fail."""

from collections.abc import Mapping
from typing import Any

from sklearn.utils.estimator_checks import check_estimator


def pass_checks(estimator: Any, expected_failures: Mapping[str, str]) -> None:
    """Fail if a check fails that is not expected to, or if one passes that is expected to fail.

    `parametrize_with_checks` would print a line for each expected failure.
    """
    results = check_estimator(estimator, expected_failed_checks=dict(expected_failures), on_skip=None)
    passed = {each["check_name"] for each in results if each["expected_to_fail"] and each["status"] == "passed"}
    assert not passed, f"{estimator} is expected to fail these checks, and passes them: {', '.join(sorted(passed))}"
