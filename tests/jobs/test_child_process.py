"""Runs in real child processes that are killed, hang and run out of memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import msgspec
import pytest

from pebbler import machine, workloads
from pebbler.jobs.child_process import ChildPool, ChildProcess
from pebbler.jobs.request import JobReply, JobRequest, current_versions
from pebbler.sweeps.solve_task import SolveTask, TaskResult
from worker_processes import children_of, has_ended, wait_for

TASK = "pebbler.sweeps.solve_task:solve_task"


def request(spec="chain:length=9", levels="red-blue", seconds=None, memory=None, limit=5.0):
    task = SolveTask(workloads.get(spec).to_json(), msgspec.json.encode(machine(levels)), "auto", 0, limit, False, None)
    made = JobRequest(TASK, msgspec.msgpack.encode(task), current_versions(), seconds, memory)
    return msgspec.msgpack.encode(made)


LONG = {"spec": "deep-mlp:n=10,hidden=60,layers=4", "levels": "notes", "limit": 300.0}


@pytest.fixture
def pool():
    made = ChildPool()
    yield made
    made.close()


def ask(pool, **more):
    return msgspec.msgpack.decode(pool.attempt(request(**more)), type=JobReply)


def test_one_process_answers_one_request_after_the_other(pool):
    first = ask(pool)
    pids = children_of(os.getpid())
    assert msgspec.msgpack.decode(first.body, type=TaskResult).figures["energy"] == 119
    assert ask(pool).body[:40] == first.body[:40]
    assert children_of(os.getpid()) == pids
    # One that died while it waited is replaced, and nobody hears of it.
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    again = ask(pool)
    assert (again.status, again.reason) == ("done", "")
    assert children_of(os.getpid()) != pids


def test_a_killed_run_is_lost_and_says_so(pool):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(ask(pool, **LONG)))
    thread.start()
    (pid,) = wait_for(lambda: children_of(os.getpid()))
    os.kill(pid, signal.SIGKILL)
    thread.join(60)
    assert answers[0].status == "lost"
    assert "killed (signal 9)" in answers[0].reason


def test_a_run_past_its_limit_is_ended(pool):
    reply = ask(pool, **LONG, seconds=1.5)
    assert (reply.status, reply.reason) == ("lost", "it ran past its limit of 1.5 s")
    assert children_of(os.getpid()) == []


def test_a_stopped_process_counts_as_hung():
    child = ChildProcess()
    os.kill(child._process.pid, signal.SIGSTOP)
    big = request("chain:length=20000")  # more than a pipe takes, so that writing it hangs too
    assert len(big) > 2**17
    assert child.ask(big, 1.0).reason == "it ran past its limit of 1 s"


def test_a_run_without_memory_is_lost(pool):
    reply = ask(pool, memory=2**20)
    assert reply.status == "lost"
    assert "memory" in reply.reason or "its process" in reply.reason
    assert ask(pool).status == "done"


def test_closing_ends_what_runs(pool):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(ask(pool, **LONG)))
    thread.start()
    wait_for(lambda: children_of(os.getpid()))
    pool.close()
    thread.join(30)
    assert answers[0].status == "lost"
    assert wait_for(lambda: not children_of(os.getpid()))
    assert ask(pool).reason == "the sweep was stopped"


PARENT = """
import sys
from pebbler.jobs.child_process import attempt
sys.stdout.write("ready\\n"); sys.stdout.flush()
attempt(sys.stdin.buffer.read())
"""


def test_children_end_with_a_parent_that_is_killed():
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None
        parent.stdin.write(request(**LONG))
        parent.stdin.close()
        pids = wait_for(lambda: children_of(parent.pid))
        parent.kill()
    wait_for(lambda: all(map(has_ended, pids)))
