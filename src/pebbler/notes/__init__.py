"""The five notes, reproduced: their training, their event traces and their experiments."""

from __future__ import annotations

from pebbler.notes.parity import Config, Data, Params, draw_data, draw_params
from pebbler.notes.reproduction import EXPERIMENTS, reproduce
from pebbler.notes.training import ORDERS, Run, margins, tiled_order, train

__all__ = [
    "EXPERIMENTS",
    "ORDERS",
    "Config",
    "Data",
    "Params",
    "Run",
    "draw_data",
    "draw_params",
    "margins",
    "reproduce",
    "tiled_order",
    "train",
]
