"""Train with Hugging Face's Trainer within a memory budget: compile the model in place, hand it over as ever."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=1, n_head=2))
model.compile(backend="pebbler", options={"budget": "16MiB"})
data = [{"input_ids": tokens, "labels": tokens} for tokens in torch.randint(64, (1, 32)).expand(64, 32)]
arguments = TrainingArguments("out", max_steps=8, learning_rate=1e-2, report_to=[], save_strategy="no", use_cpu=True)
trainer = Trainer(model, arguments, train_dataset=data)
trainer.train()
print(f"loss {trainer.evaluate(data[:8])['eval_loss']:.3f}, {trainer.state.global_step} steps")
