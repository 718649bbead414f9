"""Train with Hugging Face's Accelerate within a memory budget: compile the model in place before `prepare`."""

import torch
from accelerate import Accelerator
from torch import nn

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.Tanh())])
model.compile(backend="pebbler", options={"budget": "1.5MB"})
data = torch.utils.data.DataLoader(torch.randn(2048, 64), batch_size=256)
model, optimizer, data = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), data)
for x in data:
    with accelerator.accumulate(model):
        loss = (model(x) - x).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.item():.3f}")
