"""No plan trains silently wrong: every kind of loop trains as the step itself does, or is refused by name."""

from __future__ import annotations

import random
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'pebbler[torch]'")

import pebbler.torch as pt  # noqa: E402
from pebbler.errors import InputError, PebblerError  # noqa: E402
from quick_cases import quick_only  # noqa: E402
from torch_loops import BRANCHING, PARTS, REFUSED, RIGHT, Loop, put_together  # noqa: E402

# Iterators cannot be wound back, a cache cannot forget one entry, and numbers from the operating system never come again.
NOT_RESTORED = (
    "a counter in a module, iterator",
    "a_counter_in_a_generator",
    "a_counter_in_a_cache",
    "a_numpy_generator_made_inside",
)


TIGHT = (
    "checkpointed_layers_with_dropout",
    "random_state_saved_and_set_inside",
    "batch_norm_and_dropout",
    "a mean over all batches",
    "gradient scaler",
    "complex weights, adam",
    "a_spectral_layer",
    "adafactor",
)


# One of every kind; all of them are run with -m slow.
QUICK = {
    "adamw_foreach", "batch_norm_and_dropout", "checkpointed_layers_with_dropout", "a_seed_inside_the_step",
    "a_generator_of_its_own", "one_cycle_of_rate_and_betas", "a_dataclass_batch", "the_same_tensor_twice",
    "a_setting_found_out_once", "a_moving_average_by_data", "a_numpy_mask", "an_optimizer_that_runs_every_other_step",
    "a counter in a module, self", "a_scheduler_inside", "a loss that is no number", "evaluation_mode", "a_parameter_replaced",
    "a_number_in_a_closure_changed", "layers left out, rand", "a_branch_on_an_argument", "a_subclass_of_tensors",
    "an_argument_that_is_a_parameter_s_memory", "a_first_step_that_does_more",
}  # fmt: skip


def seeded(make):
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    loop = make()
    torch.manual_seed(1)
    return loop


def flat(value):
    leaves = torch.utils._pytree.tree_leaves(value)
    return [
        leaf.detach().clone().as_subclass(torch.Tensor) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves
    ]


def same(ours, theirs):
    if isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor):
        alike = ours.shape == theirs.shape and ours.dtype == theirs.dtype
        return alike and torch.equal(torch.nan_to_num(ours, 7.7), torch.nan_to_num(theirs, 7.7))
    return type(ours) is type(theirs) and (ours == theirs or (ours != ours and theirs != theirs))


def run(loop, step):
    """Run the loop; return what is known after every step: results, tensors, the random state."""
    seen, number = [], 0
    try:
        for number, batch in enumerate(loop.batches):
            loop.between(number)
            result = step(*batch, **(loop.keywords[number] if loop.keywords else {}))
            seen.append([*flat(result), *flat(loop.tensors()), torch.get_rng_state()])
    finally:
        for later in range(number + 1, len(loop.batches) + 1):
            loop.between(later)  # leaves what it entered
        torch.set_default_dtype(torch.float32)
    return seen


def planned(loop, budget=None):
    keywords = {} if not loop.keywords else {"keywords": loop.keywords[0]}
    plan = pt.plan(loop.step, loop.batches[0], device="cpu", budget=budget, time_limit=0.2, **keywords)
    return pt.compile(plan, loop.step, verify="never"), plan


def difference(ours, theirs):
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert len(one) == len(other), f"step {number}: {len(one)} and {len(other)} tensors"
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            if not same(a, b):
                return f"step {number}, tensor {i}: {a} is not {b}"
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", quick_only(QUICK, RIGHT))
def test_it_trains_as_the_step_does(name):
    make = RIGHT[name]
    loop = seeded(make)
    eager = run(loop, loop.step)
    loop = seeded(make)
    step, plan = planned(loop)
    assert difference(run(loop, step), eager) is None
    if name in TIGHT:
        # As little memory as possible: values are made again, random ones too.
        least = pt.least_budget(plan.captured, pt.roofline(plan.captured, "cpu"), time_limit=0.2)[1]
        loop = seeded(make)
        step, _ = planned(loop, least)
        assert difference(run(loop, step), eager) is None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", quick_only(QUICK, REFUSED))
def test_it_is_refused_by_name_and_nothing_has_changed(name):
    make, message = REFUSED[name]
    loop = seeded(make)
    eager = run(loop, loop.step)
    loop = seeded(make)
    calls = []

    def train():
        step, _ = planned(loop)

        def counted(*args, **keywords):
            calls.append(args)
            return step(*args, **keywords)

        run(loop, counted)

    with pytest.raises(InputError) as refusal:
        train()
    assert re.search(message, str(refusal.value)), str(refusal.value)
    if not calls and name not in NOT_RESTORED:
        # Refused while it was captured: the loop goes on without a plan as if nothing had happened.
        assert difference(run(loop, loop.step), eager) is None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", quick_only(QUICK, BRANCHING))
def test_it_gets_a_plan_for_every_branch(name):
    make = BRANCHING[name]
    loop = seeded(make)
    eager = run(loop, loop.step)
    loop = seeded(make)
    step = pt.step(loop.step, device="cpu", time_limit=0.2, strict=True)
    assert difference(run(loop, step), eager) is None
    assert len(step.plans) > 1
    loop = seeded(make)
    with pytest.raises(InputError, match=r"(value|number).*pt\.step"):  # one plan serves for one branch
        run(loop, planned(loop)[0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_generated_loops_train_alike_or_are_refused():
    """Loops put together at random: optimizer, layers, random numbers, counters, and something that changes between steps."""
    outcomes = Counter()

    @settings(max_examples=150, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data):
        choices = {name: data.draw(st.sampled_from(sorted(parts)), name) for name, parts in PARTS.items()}
        when, door = data.draw(st.integers(1, 4), "when"), data.draw(st.booleans(), "door")

        def make():
            return put_together(choices, when)

        loop = seeded(make)
        eager = run(loop, loop.step)
        loop = seeded(make)
        try:
            step = pt.step(loop.step, device="cpu", time_limit=0.1, strict=True) if door else planned(loop)[0]
            ours = run(loop, step)
        except pt.PlanDiffers:
            raise
        except PebblerError:
            outcomes["pt.step" if door else "pt.plan", "refused"] += 1
            return
        outcomes["pt.step" if door else "pt.plan", "ran"] += 1
        assert difference(ours, eager) is None

    check()
    print(dict(outcomes))
    assert outcomes["pt.step", "ran"] > 10
    assert outcomes["pt.plan", "ran"] > 0


@pytest.mark.slow  # it loads all of PyTorch that shards models
@pytest.mark.filterwarnings("ignore")
def test_training_over_several_processes_is_refused_by_name():
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("this build of PyTorch has no gloo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = torch.nn.Linear(4, 2)

        def reduced(x):
            y = model(x)
            dist.all_reduce(y)
            return y.sum()

        def gathered(x):
            parts = [torch.empty(3, 4)]
            dist.all_gather(parts, x)
            return parts[0].sum()

        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import Shard, distribute_tensor
        from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

        mesh = init_device_mesh("cpu", (1,))
        sharded = fully_shard(torch.nn.Sequential(torch.nn.Linear(4, 2)), mesh=mesh)
        parallel = parallelize_module(torch.nn.Linear(4, 2), mesh, ColwiseParallel())
        split = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
        rule = torch.optim.AdamW(sharded.parameters())

        def shards(x):
            rule.zero_grad()
            sharded(x).sum().backward()
            rule.step()

        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        before = [param.full_tensor().clone() for param in sharded.parameters()]
        for step, message in (
            (reduced, r"test_semantics.py:\d+: c10d.allreduce.* talks to other processes"),
            (gathered, r"test_semantics.py:\d+: c10d.allgather.* talks to other processes"),
            (lambda x: wrapped(x).sum().backward(), "wrapped is a DistributedDataParallel"),
            (shards, "sharded is a FSDPSequential: training split over processes"),
            (lambda x: parallel(x).sum().backward(), r"test_semantics.py:\d+: tensors of the subclass DTensor"),
            (lambda x: (split * x.sum()).to_local().sum(), r"test_semantics.py:\d+: tensors of the subclass DTensor"),
        ):
            with pytest.raises(InputError, match=message):
                pt.capture(step, torch.ones(3, 4))
        assert not rule.state
        after = [param.full_tensor() for param in sharded.parameters()]
        assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    finally:
        dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layerdrop", [0.0, pytest.param(0.4, marks=pytest.mark.slow)])
def test_a_batch_of_transformers_and_layers_left_out_as_its_models_do(layerdrop):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    sizes = {"vocab_size": 30, "d_model": 8, "encoder_layers": 2, "decoder_layers": 1, "max_position_embeddings": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    config = transformers.BartConfig(
        **sizes, **heads, encoder_layerdrop=layerdrop, pad_token_id=1, decoder_start_token_id=3
    )

    def make():
        model = transformers.BartForConditionalGeneration(config).train()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)

        def step(batch):
            optimizer.zero_grad()
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            return loss

        ids = torch.randint(4, 30, (5, 2, 6))
        mask = torch.ones(2, 6, dtype=torch.long)
        rows = [
            (transformers.BatchEncoding({"input_ids": x, "attention_mask": mask.clone(), "labels": x}),) for x in ids
        ]
        return Loop(step, rows, lambda: list(model.parameters()))

    loop = seeded(make)
    eager = run(loop, loop.step)
    loop = seeded(make)
    step = pt.step(loop.step, device="cpu", time_limit=0.2, strict=True)
    assert difference(run(loop, step), eager) is None
    assert (len(step.plans) > 1) == (layerdrop > 0)
