"""Settings that every test shares."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from pebbler.solver.warm_up import PARTS, warm_up

# The same cases on every run: a failure that comes and goes helps nobody.
settings.register_profile(
    "pebbler",
    derandomize=True,
    deadline=None,
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("pebbler")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile kernels before any test runs: on all cores, once, and with no test that hears of it."""
    if not hasattr(session.config, "workerinput"):
        warm_up(PARTS)
