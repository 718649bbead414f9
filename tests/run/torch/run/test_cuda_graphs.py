"""What recording asks of CUDA, on a simulated device: pieces, pools within the budget, draws that are repeated, failures."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

from pebbler.run.torch.run import cuda_graphs  # noqa: E402
from pebbler.run.torch.run.cuda_graphs import CudaGraphs  # noqa: E402


class Generator:
    """Has a state that can be exchanged for that of another one; draws move its offset."""

    def __init__(self, state):
        self.state = state

    def clone_state(self):
        return Generator(SimpleNamespace(**vars(self.state)))

    def graphsafe_get_state(self):
        return Generator(self.state)

    def graphsafe_set_state(self, other):
        self.state = other.state

    def get_state(self):
        numbers = (self.state.seed, self.state.offset)
        return torch.tensor(list(b"".join(n.to_bytes(8, "little") for n in numbers)), dtype=torch.uint8)

    def set_state(self, state):
        self.state.seed, self.state.offset = (
            int.from_bytes(bytes(part.tolist()), "little") for part in (state[:8], state[8:])
        )


class Graph:
    def __init__(self):
        self.log, self.registered = [], []

    def register_generator_state(self, generator):
        self.registered.append(generator)

    def capture_begin(self, pool, capture_error_mode):
        assert capture_error_mode == "thread_local"
        GPU.capturing = self
        GPU.pools[pool] = GPU.pools.get(pool, 0) + GPU.takes

    def capture_end(self):
        if GPU.broken:
            raise RuntimeError("operation failed due to a previous error during capture")
        GPU.capturing = None

    def replay(self):
        self.log.append("replayed")

    def reset(self):
        self.log.append("reset")


class Stream:
    def wait_stream(self, other):
        pass


GPU = SimpleNamespace()


@contextmanager
def within(stream):
    GPU.streams.append(stream)
    try:
        yield
    finally:
        GPU.streams.pop()


@pytest.fixture
def gpu(monkeypatch):
    state = SimpleNamespace(seed=5, offset=1000)
    vars(GPU).update(
        capturing=None, broken=False, pools={}, takes=100, outside=1000, streams=[], settings=[], count=0, cleared=0,
        generator=Generator(state),
    )  # fmt: skip

    def handle():
        GPU.count += 1
        return (0, GPU.count)

    def snapshot():
        return [{"segment_pool_id": pool, "total_size": size} for pool, size in GPU.pools.items()]

    cuda = SimpleNamespace(
        CUDAGraph=Graph, Stream=lambda device: Stream(), stream=within, current_stream=lambda device: Stream(),
        synchronize=lambda device: None, empty_cache=lambda: None, memory_allocated=lambda device: GPU.outside,
        memory_snapshot=snapshot, graph_pool_handle=handle, default_generators=[GPU.generator],
    )  # fmt: skip
    core = SimpleNamespace(
        _cuda_clearCublasWorkspaces=lambda: setattr(GPU, "cleared", GPU.cleared + 1),
        _accelerator_setAllocatorSettings=GPU.settings.append,
    )
    fake = SimpleNamespace(
        cuda=cuda, _C=core, device=torch.device, frombuffer=torch.frombuffer, uint8=torch.uint8, fx=torch.fx
    )
    monkeypatch.setattr(cuda_graphs, "torch", fake)
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    return GPU


def program(binds=()):
    return SimpleNamespace(binds=list(binds), transfers=None)


def repeated(drawn):
    """Return nodes that save a generator after so much was drawn, and set it back."""
    graph = torch.fx.Graph()
    saved = graph.call_function(len, ("cuda:0",))
    saved.meta["drawn"] = drawn
    return saved, graph.call_function(len, (saved, "cuda:0")), graph.call_function(len, (saved, "cuda:0"))


def test_pieces_are_recorded_on_a_stream_of_their_own_with_fine_blocks(gpu):
    recorder = CudaGraphs("cuda:0").recorder(program(), None)
    plays = []
    for _ in range(2):
        recorder.begin([])
        assert len(gpu.streams) == 1
        assert gpu.capturing is not None
        plays.append(recorder.end())
        assert (gpu.streams, gpu.capturing) == ([], None)
    assert gpu.settings == ["expandable_segments:True", "expandable_segments:False"] * 2
    for play in plays:
        play()
    assert recorder.finish() == 0
    assert gpu.cleared == 2  # workspaces of others before, those in the pool after


def test_blocks_are_cut_to_size_until_the_outermost_asks_no_more(gpu):
    with cuda_graphs.fine_blocks("cuda:0"):
        with cuda_graphs.fine_blocks("cuda:0"):
            pass
        assert gpu.settings == ["expandable_segments:True"]
    assert gpu.settings[1:] == ["expandable_segments:False"]


def test_an_allocator_that_somebody_has_configured_stays_so(gpu, monkeypatch):
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    recorder = CudaGraphs("cuda:0").recorder(program(), None)
    recorder.begin([])
    recorder.end()
    assert gpu.settings == []


def test_a_repeated_draw_starts_where_the_first_one_did(gpu):
    recorder = CudaGraphs("cuda:0").recorder(program(), None)
    saved, back, resume = repeated(drawn=24)
    recorder.begin([back])
    own, graph = gpu.generator.state, gpu.capturing
    recorder.restore(back, saved)
    other = gpu.generator.state
    assert other is not own
    assert [generator.state for generator in graph.registered] == [other]
    recorder.restore(resume, saved)
    assert gpu.generator.state is own
    recorder.end()
    for offset, seed in ((1000, 5), (5000, 6)):
        own.offset, own.seed = offset, seed
        recorder.prepare()
        assert (other.offset, other.seed, own.offset) == (offset + 24, seed, offset)


def test_pools_count_whole_against_the_budget(gpu):
    graphs = CudaGraphs("cuda:0")
    first = graphs.recorder(program(), 1150)
    first.begin([])
    first.end()
    assert first.finish() == 0
    gpu.takes = 60  # another shape in the same pool
    second = graphs.recorder(program(), 1150)
    assert second.pool == first.pool
    second.begin([])
    second.end()
    assert second.finish() == 10
    second.abandon()
    assert not first.valid  # its memory has gone with the pool
    assert graphs.recorder(program(), None).pool != first.pool


def test_what_leaves_something_behind_has_a_pool_of_its_own(gpu):
    graphs = CudaGraphs("cuda:0")
    pools = {graphs.recorder(program(binds), None).pool for binds in ([], [("grad", 1)], [], [("grad", 1)])}
    assert len(pools) == 3


def test_a_failed_recording_leaves_the_generator_as_it_was(gpu):
    recorder = CudaGraphs("cuda:0").recorder(program(), None)
    recorder.begin([])
    spoilt, gpu.broken = gpu.generator.state, True
    recorder.abandon()
    assert gpu.generator.state is not spoilt
    assert (gpu.generator.state.offset, gpu.streams) == (1000, [])
    assert gpu.settings[-1] == "expandable_segments:False"
    assert not recorder.valid
