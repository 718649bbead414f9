"""Settings that every test shares."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# The same cases on every run: a failure that comes and goes helps nobody.
settings.register_profile(
    "pebbler",
    derandomize=True,
    deadline=None,
    max_examples=200,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("pebbler")
