"""Options of the backend: what is taken, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from pebbler.errors import InputError
from pebbler.run.torch.backend.backend_options import BackendOptions


@pytest.mark.parametrize(
    ("given", "budget", "share"),
    [(1048576, 1048576, None), ("2GiB", 2**31, None), ("1.5MB", 1_500_000, None),
     (0.5, None, 0.5), ("0.5", None, 0.5), (1.0, None, 1.0),
     ("1048576", 1048576, None), (2e6, 2_000_000, None), (None, None, None), ("", None, None)],
)  # fmt: skip
def test_budgets_are_bytes_or_a_share(given, budget, share):
    told = BackendOptions.read({"budget": given}, {})
    assert (told.budget, told.share) == (budget, share)
    assert told.free == (budget is None and share is None)


def test_the_least_is_a_budget():
    told = BackendOptions.read({"budget": " Least"}, {})
    assert (told.least, told.free, told.budget, told.share) == (True, False, None, None)
    assert BackendOptions.read({}, {"PEBBLER_BUDGET": "least"}).least


def test_the_cache_may_come_from_the_environment():
    assert BackendOptions.read({}, {"PEBBLER_PLANS": "~/plans"}).cache == "~/plans"
    assert BackendOptions.read({"cache": Path("here")}, {"PEBBLER_PLANS": "~/plans"}).cache == "here"


def test_a_host_budget_says_that_values_may_go_there():
    told = BackendOptions.read({"budget": 0.5, "host_budget": "1GiB"}, {})
    assert (told.offload, told.host_budget) == (True, 2**30)
    assert BackendOptions.read({"offload": True}, {"PEBBLER_BUDGET": "2MiB"}).host_budget is None
    assert not BackendOptions.read({"budget": 0.5}, {}).offload
    assert told.planning != BackendOptions.read({"budget": 0.5, "host_budget": "2GiB"}, {}).planning


def test_an_option_goes_before_the_environment():
    assert BackendOptions.read({}, {"PEBBLER_BUDGET": "2MiB"}).budget == 2**21
    assert BackendOptions.read({"budget": 5000}, {"PEBBLER_BUDGET": "2MiB"}).budget == 5000
    assert BackendOptions.read(None, {}).free


@pytest.mark.parametrize(
    ("options", "message"),
    [({"bugdet": 1}, "unknown option bugdet .did you mean budget"), ({"max_autotune": True}, "unknown option max_autotune"),
     ({"offload": True}, "offload: values go to the host to keep a budget"), ({"cache": 3}, "cache: expected a folder"),
     ({"objective": "speed"}, "objective: expected time or energy"),
     ({"budget": "lots"}, "budget: expected bytes"), ({"budget": 0.0}, "budget: expected"),
     ({"budget": -0.5}, "budget: expected"),
     ({"budget": True}, "budget: expected bytes"), ({"time_limit": 0}, "time_limit: expected seconds"),
     ({"budget": 0.5, "offload": 1}, "offload: expected True or False, got 1"),
     ({"budget": 0.5, "offload": False, "host_budget": 7}, "host_budget: nothing goes to the host"),
     ({"budget": 0.5, "host_budget": "many"}, "host_budget: expected bytes such as 6GiB"),
     ({"budget": 0.5, "host_budget": -1}, "host_budget: expected bytes such as 6GiB"),
     ({"budget": 0.5, "host_budget": True}, "host_budget: expected bytes such as 6GiB"),
     ({"time_limit": "1"}, "time_limit: expected seconds"), ({"reserve": "x"}, "expected bytes")],
)  # fmt: skip
def test_what_is_wrong_is_named(options, message):
    with pytest.raises(InputError, match=message):
        BackendOptions.read(options, {})
