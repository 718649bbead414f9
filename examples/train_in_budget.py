"""Train a model within a memory budget: the same numbers, bit for bit, in less than half of the memory."""

import torch
from torch import nn

import pebbler.torch as pt


def training():
    """Return an ordinary training step and one batch; `pebbler torch examples.train_in_budget:training` takes this too."""
    torch.manual_seed(0)
    layers = [layer for _ in range(12) for layer in (nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.1))]
    model = nn.Sequential(*layers, nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, (torch.randn(1024, 64), torch.randint(10, (1024,)))


if __name__ == "__main__":
    step, batch = training()
    plan = pt.plan(step, batch, budget="5MiB", time_limit=3)
    fast_step = pt.compile(plan, step)
    losses = [fast_step(*batch).item() for _ in range(5)]
    print(f"peak {plan.peak:,} bytes, time x {plan.cost / plan.unplanned:.2f}, losses {losses}")
