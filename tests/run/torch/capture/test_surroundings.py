"""Whatever a step does while it is recorded, everything of the user's is afterwards what it was, and training goes as it would."""

from __future__ import annotations

import gc
import io
import itertools
import shlex
import sys
import warnings
import weakref
from contextlib import redirect_stderr, redirect_stdout
from itertools import compress, pairwise

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: E402

import pebbler.torch as pt  # noqa: E402
from pebbler.errors import InputError, PebblerError  # noqa: E402
from pebbler.run.torch.capture import surroundings  # noqa: E402
from pebbler.run.torch.capture.recordings import without_finalizers  # noqa: E402
from pebbler.run.torch.capture.surroundings import Surroundings, forget  # noqa: E402
from quick_cases import quick_only  # noqa: E402
from torch_habits import DAMAGING, OPENED, SPEAKING, WORLD  # noqa: E402

HABITS = {**DAMAGING, **SPEAKING}
STEPS = 4
FROZEN: list[torch.Tensor] = []
EARLIER: list[torch.Tensor] = []
# One of every kind; all of them are run with -m slow.
QUICK = {
    "sharpness_aware", "averaged_weights_swapped_in", "a_cached_function", "an_error_in_the_middle", "print", "a_thread",
}  # fmt: skip
# Of these training is compared as well: something is damaged, spoken or kept in each other way.
TRAINED = {"sharpness_aware", "print"}


def made(name):
    WORLD.clear()
    torch.manual_seed(0)
    habit = HABITS[name]()
    torch.manual_seed(1)
    return habit


def tensors():
    objects, kinds = gc.get_objects(), {torch.Tensor, torch.nn.Parameter, FakeTensor}
    return [*FROZEN, *compress(objects, map(kinds.__contains__, map(type, objects)))]


@pytest.fixture(autouse=True, scope="module")
def frozen():
    """Look also at the tensors that `conftest` has frozen."""
    gc.unfreeze()
    FROZEN[:] = tensors()
    gc.freeze()
    yield
    FROZEN.clear()


@pytest.fixture(autouse=True)
def earlier():
    """What other tests of this process still hold is not what the step has left."""
    gc.collect()
    EARLIER[:] = [tensor for tensor in tensors() if tensor.device.type == "meta" or isinstance(tensor, FakeTensor)]
    yield
    EARLIER.clear()
    for file in OPENED:
        file.close()
    OPENED.clear()


def require_real():
    """No tensor without memory is left, whoever holds it, and no tensor is on the device "meta"."""
    known = set(map(id, EARLIER))
    if any(tensor.device.type == "meta" or type(tensor) is FakeTensor for tensor in tensors()):
        gc.collect()
    for tensor in [one for one in tensors() if id(one) not in known]:
        assert type(tensor) is not FakeTensor, gc.get_referrers(tensor)
        assert tensor.device.type == "cpu"


@pytest.fixture
def freezing():
    """Leave nothing of a test frozen that is garbage."""
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def test_what_a_program_has_frozen_is_put_back_too(freezing):
    """Servers freeze what they have loaded, so that the collector looks at it no more; `gc.get_objects` leaves it out then."""
    weight, fakes = torch.nn.Parameter(torch.ones(2)), FakeTensorMode(allow_non_fake_inputs=True)
    gc.freeze()
    with without_finalizers():
        before = Surroundings(fakes)
        with fakes:
            weight.data = torch.zeros(2)
        assert before.put_back([]) == ["the memory of a tensor [2]"]
    assert gc.get_freeze_count() > 0
    assert weight.tolist() == [1.0, 1.0]


def made_of_every_kind():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout())
    with FakeTensorMode():
        fake = torch.ones(3)
    return [model, *model, *model.parameters(), torch.optim.SGD(model.parameters(), lr=0.1), fake, lambda: model]


def noted():
    """What is noted of before a capture, by identity: functions, and everything else."""
    before = Surroundings(FakeTensorMode())
    others = [row.tensor for row in before._tensors] + [held.optimizer for held in before._optimizers]
    others += [module for module, _ in before._modules] + [fake() for fake in before._own_fakes.values()]
    assert len(set(map(id, others))) == len(others)
    return set(map(id, before.functions())), set(map(id, others))


def test_what_is_frozen_is_noted_like_everything_else_and_looked_through_once(freezing):
    kept, marks = [], []
    for froze in (True, False, True):
        kept += made_of_every_kind()
        if froze:
            gc.freeze()
        kept += made_of_every_kind()
        functions, others = noted()
        assert set(map(id, kept)) <= functions | others
        marks.append(surroundings._frozen._marks)
        assert gc.get_freeze_count() > 0
    assert [mark is before for before, mark in pairwise(marks)] == [True, False]
    gc.unfreeze()
    assert noted()[1] == others
    kept += made_of_every_kind()
    gc.freeze()
    assert set(map(id, kept)) <= set().union(*noted())


def test_what_is_frozen_is_not_kept(freezing):
    model = torch.nn.Linear(2, 2)
    gone = weakref.ref(model)
    gc.freeze()
    assert id(model) in noted()[1]
    del model
    assert gone() is None


@pytest.mark.parametrize("held", [True, False])
def test_tensors_in_something_frozen_are_taken_out(freezing, held):
    """Also out of garbage that nobody holds, which counts as nothing left."""
    fakes, holder = FakeTensorMode(), [None]
    holder.append(holder)
    gc.freeze()
    with without_finalizers():
        before = Surroundings(fakes)
        with fakes:
            holder[0] = torch.ones(2)
        if not held:
            del holder
        left = before.stray()
        assert len(left) == held
        assert forget(left) == ["a list"] * held
    assert gc.get_freeze_count() > 0
    if held:
        assert holder == [holder]


def odd_tensors():
    """Tensors that refuse to say something of themselves: programs hold such ones elsewhere, and tests leave them."""
    base, gradient = torch.ones(4), torch.ones(4, requires_grad=True)
    with torch.no_grad():
        view = base[:2]
    parts = base.unbind()
    base.mul_(gradient)  # autograd forbids both views from here on
    with torch.inference_mode():
        inferred = torch.nn.Parameter(torch.ones(2))
    freed = torch.ones(10)
    freed.untyped_storage().resize_(0)
    escaped = []
    for transform in (torch.func.vmap, torch.func.functionalize, torch.func.grad):
        transform(lambda x: (escaped.append(x), x.square().sum())[1])(torch.ones(3))
    rows = [torch.ones(2), torch.ones(3)]
    nested = [torch.nested.nested_tensor(rows), torch.nested.nested_tensor(rows, layout=torch.jagged)]
    square = torch.eye(3)
    packed = [square.to_sparse(), square.to_sparse_csr(), square.to_mkldnn()]
    packed.append(torch.quantize_per_tensor(square, 0.1, 0, torch.quint8))
    conjugate = torch.ones(3, dtype=torch.complex64).conj()
    return [view, parts, inferred, inferred[1:], freed, escaped, nested, packed, conjugate, conjugate.imag]


@pytest.mark.filterwarnings("ignore")
def test_tensors_that_the_step_does_not_use_may_be_of_any_kind():
    """Every capture once failed in a process that held one of them, wherever it was."""
    held = odd_tensors()
    torch.manual_seed(0)
    model, x = torch.nn.Linear(4, 2), torch.ones(3, 4)
    rule = torch.optim.SGD(model.parameters(), 0.1)

    def step(x):
        rule.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        rule.step()
        return loss

    planned = pt.step(step, device="cpu", time_limit=0, strict=True)
    ours = [planned(x).item() for _ in range(3)]
    assert len(planned.plans) == 1
    assert len(held) == 10
    assert ours[0] > ours[1] > ours[2]


def look(tensor):
    place = tensor.data_ptr() if not isinstance(tensor, torch.nn.UninitializedParameter) else 0
    grad = tensor.grad if tensor.is_leaf else None
    return place, tensor.requires_grad, id(grad), dict(tensor._backward_hooks or {})


def flat(value):
    if isinstance(value, torch.Tensor):
        return [value.detach().clone()]
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in (key, *flat(item))]
    if isinstance(value, list | tuple):
        return [len(value), *(leaf for item in value for leaf in flat(item))]
    return [value]


def same(ours, theirs):
    if isinstance(ours, torch.Tensor):
        return isinstance(theirs, torch.Tensor) and ours.dtype == theirs.dtype and torch.equal(ours, theirs)
    return ours == theirs


def trained(name, wrap):
    """Train; return all that can be seen afterwards: losses, weights, what the habit leaves, what was printed."""
    habit = made(name)
    step = wrap(habit.step)
    out, seen = io.StringIO(), []
    for number in range(STEPS):
        with redirect_stdout(out), redirect_stderr(out), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loss = step(torch.full((3, 4), 1.0 + number))
        if step is not habit.step and number in (0, 1, STEPS - 1):
            require_real()
        seen += flat([loss, dict(habit.model.named_parameters()), dict(habit.model.named_buffers())])
    return [*seen, *flat(habit.seen()), out.getvalue(), torch.rand(1).item()], step


@pytest.mark.parametrize("name", quick_only(TRAINED, HABITS))
def test_training_goes_as_without_a_plan(name):
    eager, _ = trained(name, lambda step: step)
    ours, step = trained(name, lambda step: pt.step(step, device="cpu", time_limit=0.01))
    assert len(ours) == len(eager)
    assert all(same(a, b) for a, b in zip(ours, eager, strict=True))
    if name in SPEAKING and name != "memory_of_c":
        assert not step.plans


@pytest.mark.parametrize("name", quick_only(QUICK, HABITS))
def test_a_capture_leaves_everything_as_it_was(name):
    habit = made(name)
    x = torch.ones(3, 4)
    seen = flat(habit.seen())
    params = [*habit.model.parameters(), *habit.model.buffers()]
    kinds = [type(module) for module in habit.model.modules()]
    known = set(map(id, EARLIER))
    kept = [tensor for tensor in tensors() if tensor.layout == torch.strided and id(tensor) not in known]
    before = [(look(tensor), tensor.detach().clone()) for tensor in kept]
    random = torch.get_rng_state()
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        try:
            pt.capture(habit.step, x)
        except PebblerError as error:
            refusal = str(error)
        else:
            refusal = None
    assert refusal is None or "py:" in refusal or "lazy" in refusal
    assert out.getvalue() == ""
    require_real()
    for tensor, (old, value) in zip(kept, before, strict=True):
        assert look(tensor) == old
        assert torch.equal(tensor.detach(), value)
    assert [*habit.model.parameters(), *habit.model.buffers()] == params or all(
        a is b for a, b in zip((*habit.model.parameters(), *habit.model.buffers()), params, strict=True)
    )
    assert [type(module) for module in habit.model.modules()] == kinds
    assert torch.equal(torch.get_rng_state(), random)
    assert sys.getprofile() is None
    now = flat(habit.seen())
    assert len(now) == len(seen)
    assert all(same(a, b) for a, b in zip(now, seen, strict=True))
    if name in SPEAKING and name != "memory_of_c":
        assert refusal is not None
        assert "torch_habits.py" in refusal


def test_a_container_that_a_library_changes_is_refused_with_the_place_in_the_library():
    words = itertools.repeat(shlex.shlex("a b"))  # nobody looks into an iterator
    model = torch.nn.Linear(3, 3)

    def step(x):
        next(words).push_token("c")
        model(x).sum().backward()

    with pytest.raises(
        InputError, match=r"in shlex\.py:\d+, shlex\.push_token\): the step changes a deque of 0 that was"
    ):
        pt.capture(step, torch.randn(2, 3))
    assert not next(words).pushback


@pytest.mark.parametrize("kind", [weakref.WeakKeyDictionary, weakref.WeakValueDictionary])
def test_something_that_dies_in_a_step_may_be_known_to_a_weak_container_that_somebody_goes_through(kind):
    """An error that is kept may hold a loop over a library's weak dictionary: every later capture in the process was refused."""
    model, weak, alive = torch.nn.Linear(3, 3), kind(), torch.nn.Identity()
    note(weak, alive)
    loop = weak.items()
    next(loop)
    hidden = itertools.repeat(weak)  # nobody looks into an iterator

    def step(x):
        dying = torch.nn.Identity()
        note(next(hidden), dying)
        del dying
        model(x).sum().backward()

    pt.capture(step, torch.randn(2, 3))
    assert len(weak._pending_removals) > 0  # or nothing was tried
    loop.close()
    assert len(weak) == 1


def note(weak, x):
    if isinstance(weak, weakref.WeakKeyDictionary):
        weak[x] = 1
    else:
        weak[id(x)] = x
