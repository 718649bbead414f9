"""The five notes, reproduced: their training, their event traces, their orders and their experiments."""

from __future__ import annotations

from pebbler.notes.parity import Config, Data, Params, draw_data, draw_params
from pebbler.notes.reference_orders import NOTE_ORDERS, note_order
from pebbler.notes.reproduction import EXPERIMENTS, reproduce
from pebbler.notes.sgd import ORDERS, TrainingRun, margins, tiled_order, train

__all__ = [
    "EXPERIMENTS",
    "NOTE_ORDERS",
    "ORDERS",
    "Config",
    "Data",
    "Params",
    "TrainingRun",
    "draw_data",
    "draw_params",
    "margins",
    "note_order",
    "reproduce",
    "tiled_order",
    "train",
]
