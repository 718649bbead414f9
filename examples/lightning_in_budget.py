"""Train with Lightning within a memory budget: compile the part that holds the memory in place, and the rest stays as it is."""

import lightning
import torch
from torch import nn


class Encoder(lightning.LightningModule):
    """An autoencoder; Lightning calls `training_step` and `configure_optimizers`."""

    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.Tanh())])
        self.model.compile(backend="pebbler", options={"budget": "1.5MB"})

    def training_step(self, x):
        loss = (self.model(x) - x).square().mean()
        print(f"loss {loss.item():.3f}")
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


data = torch.utils.data.DataLoader(torch.randn(2048, 64), batch_size=256)
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
lightning.Trainer(accelerator="cpu", max_epochs=1, **quiet).fit(Encoder(), data)
