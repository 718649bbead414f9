"""The benchmark that predicts what values on the host gain, on a tiny model."""

from __future__ import annotations

import pytest
import torch
from benchmarks.torch_offload import main


def test_the_host_never_costs_more_at_a_peak(capsys):
    torch._dynamo.reset()
    main(["gpt", "--tiny", "--seconds", "20"])
    head, *rows, least = capsys.readouterr().out.splitlines()
    assert head.split() == ["peak", "GiB", "ms", "without", "ms", "with", "host", "GiB"]
    table = [[float(word) for word in row.split()] for row in rows]
    assert len(table) > 3
    assert all(with_host <= without for _, without, with_host, _ in table)
    assert least.startswith("least peak: ")
    torch._dynamo.reset()


def test_a_model_that_is_not_there_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["nothing"])
    assert "invalid choice" in capsys.readouterr().err
