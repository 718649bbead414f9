"""The ledger of a long run: it goes on where it was stopped, and begins anew on other code."""

from __future__ import annotations

import json
from types import SimpleNamespace
from unittest import mock

import ledger
from ledger import Ledger, first_cases_first, fold


def begin(path, state, worker=False):
    more = {"workerinput": {}} if worker else {}
    config = SimpleNamespace(rootpath=path.parent, hook=SimpleNamespace(pytest_deselected=lambda items: None), **more)
    with mock.patch.object(ledger, "_state_of_code", return_value=state):
        return Ledger(path, config), config


def left_of(path, state, names, worker=False):
    book, config = begin(path, state, worker)
    items = [mock.Mock(nodeid=name) for name in names]  # which can be keys
    book.pytest_collection_modifyitems(config, items)
    return [item.nodeid for item in items]


def ends(book, name, outcome, when="call"):
    failed, why = outcome == "failed", "assert 1 == 2"
    report = SimpleNamespace(nodeid=name, when=when, outcome=outcome, duration=1.0, failed=failed, longreprtext=why)
    book.pytest_runtest_logreport(report)


def test_what_passed_is_left_out_until_the_code_changes(tmp_path):
    path = tmp_path / "out" / "slow.jsonl"
    book, _ = begin(path, "one")
    for name, outcome in (("a", "passed"), ("b", "failed"), ("c", "skipped"), ("d", "failed"), ("d", "passed")):
        ends(book, name, outcome)
    ends(book, "e", "passed", when="setup")
    ends(book, "f", "passed")
    ends(book, "f", "failed", when="teardown")
    assert left_of(path, "one", "abcdef") == ["b", "e", "f"]
    assert left_of(path, "two", "abcdef") == list("abcdef")


def test_failures_are_kept_with_their_reason(tmp_path):
    """A run that is stopped prints no summary: what had failed was known by name only."""
    path = tmp_path / "slow.jsonl"
    book, _ = begin(path, "one")
    ends(book, "a", "passed")
    ends(book, "b", "failed")
    assert [json.loads(line).get("why") for line in path.read_text().splitlines()[1:]] == [None, "assert 1 == 2"]


def test_a_run_goes_on_with_tests_of_which_no_case_has_run(tmp_path):
    path, names = tmp_path / "slow.jsonl", [f"{name}[{i}]" for name in "xy" for i in range(5)]
    book, _ = begin(path, "one")
    for name in names[:3]:
        ends(book, name, "passed")
    assert left_of(path, "one", names)[:3] == names[5:8]


def test_workers_collect_what_was_left_when_the_run_began(tmp_path):
    path = tmp_path / "slow.jsonl"
    book, _ = begin(path, "one")
    ends(book, "a", "passed")
    assert left_of(path, "one", "ab", worker=True) == ["a", "b"]
    written = path.read_text()
    worker, _ = begin(path, "one", worker=True)
    ends(worker, "b", "passed")
    assert path.read_text() == written


def test_three_cases_of_every_test_come_first():
    items = [mock.Mock(nodeid=f"{name}[{i}]") for name in "xy" for i in range(5)]
    first_cases_first(items)
    assert [item.nodeid for item in items][:6] == [f"{name}[{i}]" for name in "xy" for i in range(3)]


def test_a_committed_record_goes_on_in_another_clone_and_counts_every_case_once(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for root in (first, second):
        (root / ".ci").mkdir(parents=True)
    book, _ = begin(first / "slow.jsonl", "one")
    for name, outcome in (("x.py::a[0]", "passed"), ("x.py::b", "failed"), ("y.py::c", "skipped")):
        ends(book, name, outcome)
    assert fold(first, first / "slow.jsonl") == fold(first, first / "slow.jsonl") == (2, 0, 2.0)
    (second / ".ci" / "slow.json").write_text((first / ".ci" / "slow.json").read_text())
    names = ["x.py::a[0]", "x.py::a[1]", "x.py::b", "y.py::c"]
    assert left_of(second / "slow.jsonl", "one", names) == names[1:3]
    book, _ = begin(second / "slow.jsonl", "one")
    ends(book, "x.py::b", "passed")
    assert fold(second, second / "slow.jsonl") == (3, 0, 3.0)
    never, *once = names[1], names[0], *names[2:]
    assert left_of(second / "slow.jsonl", "two", names) == [never, *once]
    book, _ = begin(second / "slow.jsonl", "two")
    ends(book, "x.py::b", "passed")
    assert fold(second, second / "slow.jsonl") == (1, 2, 1.0)
    assert left_of(second / "slow.jsonl", "two", names) == [never, "x.py::a[0]", "y.py::c"]
    (first / ".ci" / "slow.json").write_text((second / ".ci" / "slow.json").read_text())
    assert left_of(first / "slow.jsonl", "one", names) == [never, "x.py::b"]  # which has passed since on another state
