"""Non-negative least squares against trying every set of coefficients."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from pebbler.joules.calibration import fit_non_negative


def naive(amounts: np.ndarray, measured: np.ndarray) -> float:
    """Return the least sum of squared relative errors over all non-negative coefficients."""
    a, b = amounts / measured[:, None], np.ones(len(measured))
    best = float(b @ b)
    for count in range(1, a.shape[1] + 1):
        for chosen in combinations(range(a.shape[1]), count):
            x = np.linalg.lstsq(a[:, chosen], b, rcond=None)[0]
            if (x >= 0).all():
                best = min(best, float(((a[:, chosen] @ x - b) ** 2).sum()))
    return best


def test_no_set_of_coefficients_fits_better():
    for seed in range(300):
        draw = np.random.default_rng(seed)
        rows, columns = int(draw.integers(2, 9)), int(draw.integers(1, 6))
        amounts = (
            draw.uniform(0, 1, (rows, columns))
            * draw.integers(0, 2, (rows, columns))
            * 10.0 ** draw.integers(0, 9, columns)
        )
        measured = draw.uniform(0.1, 10, rows)
        fit = fit_non_negative(amounts, measured)
        assert (fit.values >= 0).all()
        assert float(fit.residuals @ fit.residuals) == pytest.approx(naive(amounts, measured), rel=1e-6, abs=1e-9)
        assert fit.residuals == pytest.approx(amounts @ fit.values / measured - 1, abs=1e-9)


def test_standard_errors_cover_the_truth():
    truth, inside = np.array([80.0, 120e-12, 0.5e-12]), 0
    for seed in range(200):
        draw = np.random.default_rng(seed)
        amounts = np.column_stack([draw.uniform(0.001, 1, 30), draw.uniform(0, 4e12, 30), draw.uniform(0, 7e14, 30)])
        fit = fit_non_negative(amounts, amounts @ truth * draw.normal(1, 0.02, 30))
        inside += int((np.abs(fit.values - truth) < 2 * fit.errors).sum())
    assert 0.9 < inside / 600 < 0.99
