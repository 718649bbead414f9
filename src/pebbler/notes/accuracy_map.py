"""Energy to accuracy from what was measured: samples needed x energy per sample, cell by cell, and how sure the best cell is.

Every cell (batch x hidden) takes the learning rate at which the median seed needs the fewest samples. A seed that never gets there
counts as later than all that do, so that nothing is dropped, and the limit on samples does not matter to a median that exists.
The bootstrap tells what is left to chance: seeds are drawn again with replacement, the same for every cell, and each time rates
and the best cell are chosen anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pebbler.arrays import Floats
from pebbler.notes.accuracy_grid import Measurements

__all__ = ["RESAMPLES", "CellEnergy", "EnergyMap", "TrainedCell", "energy_map", "median", "trained_cells"]

RESAMPLES = 2_000
_PJ_PER_UJ = 1e6
Cell = tuple[int, int]


@dataclass(frozen=True, eq=False)
class TrainedCell:
    """The training cost of one batch size and hidden size: at its best learning rate, and over resampled seeds."""

    batch: int
    hidden: int
    lr: float
    samples: float  # of the median seed; infinite when half of the seeds or more do not get there
    learned: int  # seeds that get there at all
    resampled: Floats

    @property
    def steps(self) -> float:
        """Updates of the parameters until the median seed gets there."""
        return self.samples / self.batch


@dataclass(frozen=True, eq=False)
class CellEnergy:
    """µJ to accuracy of one cell: of the plan that was found, with its interval over seeds, and at least."""

    cell: TrainedCell
    per_sample: float
    per_sample_bound: float

    @property
    def energy(self) -> float:
        """µJ for the median seed."""
        return self.cell.samples * self.per_sample

    @property
    def bound(self) -> float:
        """µJ that no plan of these steps undercuts."""
        return self.cell.samples * self.per_sample_bound

    @property
    def interval(self) -> tuple[float, float]:
        """µJ between which 90 % of the resampled medians lie."""
        low, high = np.quantile(self.cell.resampled, (0.05, 0.95), method="nearest") * self.per_sample
        return float(low), float(high)


@dataclass(frozen=True, eq=False)
class EnergyMap:
    """µJ to one accuracy on one machine, with plans of one kind."""

    machine: str
    schedule: str
    cells: dict[Cell, CellEnergy]

    @cached_property
    def best(self) -> CellEnergy:
        """The cell that needs the least energy."""
        return min(self.cells.values(), key=lambda one: one.energy)

    @cached_property
    def shares(self) -> dict[Cell, float]:
        """In what share of the resamples each cell is the best, for those that ever are; the most frequent first."""
        energies = np.stack([one.cell.resampled * one.per_sample for one in self.cells.values()])
        winners = np.bincount(energies.argmin(axis=0), minlength=len(self.cells)) / energies.shape[1]
        found = {cell: float(share) for cell, share in zip(self.cells, winners, strict=True) if share > 0}
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    @property
    def sure(self) -> float:
        """In what share of the resamples the best cell is the best."""
        return self.shares.get((self.best.cell.batch, self.best.cell.hidden), 0.0)

    def sure_of_batches(self, low: int, high: int) -> float:
        """Return in what share of the resamples the best cell has a batch in a range."""
        return sum(share for (batch, _), share in self.shares.items() if low <= batch <= high)

    def might_win(self) -> list[CellEnergy]:
        """Return the other cells that would be the best if a plan reached its bound there."""
        return [one for one in self.cells.values() if one is not self.best and one.bound < self.best.energy]

    def best_of_hidden(self, hidden: int) -> CellEnergy:
        """Return the cell of a hidden size that needs the least energy."""
        return min((one for one in self.cells.values() if one.cell.hidden == hidden), key=lambda one: one.energy)

    def best_of_batch(self, batch: int) -> CellEnergy:
        """Return the cell of a batch size that needs the least energy."""
        return min((one for one in self.cells.values() if one.cell.batch == batch), key=lambda one: one.energy)


def median(samples: Floats) -> Floats:
    """Return the middle of the last axis, the later of two: more than half of all are there by then.

    >>> median(np.array([[3.0, 1.0, 2.0, np.inf]])).tolist()
    [3.0]
    """
    return np.sort(samples, axis=-1)[..., samples.shape[-1] // 2]


def trained_cells(found: Measurements, goal: float) -> dict[Cell, TrainedCell]:
    """Return every cell's training to an accuracy."""
    which, seeds = found.goals.index(goal), len(found.grid.seeds)
    rates: dict[Cell, dict[float, Floats]] = {cell: {} for cell in found.grid.cells}
    for one in found.trained:
        samples = [np.inf if count is None else float(count) for count in one.samples[which]]
        rates[one.batch, one.hidden][one.lr] = np.array(samples)
    drawn = np.random.default_rng(0).integers(seeds, size=(RESAMPLES, seeds))
    cells = {}
    for (batch, hidden), runs in rates.items():
        lr = min(runs, key=lambda rate: (median(runs[rate]), np.mean(np.minimum(runs[rate], 1e9)), rate))
        resampled = np.min([median(samples[drawn]) for samples in runs.values()], axis=0)
        learned = int(np.isfinite(runs[lr]).sum())
        cells[batch, hidden] = TrainedCell(batch, hidden, lr, float(median(runs[lr])), learned, resampled)
    return cells


def energy_map(found: Measurements, cells: dict[Cell, TrainedCell], machine: str, schedule: str) -> EnergyMap:
    """Return the energy of every cell on a machine, with plans of one kind."""
    prices = {
        (one.batch, one.hidden): one for one in found.prices if (one.machine, one.schedule) == (machine, schedule)
    }

    def energy(cell: Cell) -> CellEnergy:
        scale = 1 / (cell[0] * _PJ_PER_UJ)
        return CellEnergy(cells[cell], prices[cell].energy * scale, prices[cell].bound * scale)

    return EnergyMap(machine, schedule, {cell: energy(cell) for cell in cells})
