"""Non-negative least squares with standard errors, for prices, which cannot be negative."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pebbler.arrays import Floats

__all__ = ["Fit", "fit_non_negative"]


@dataclass(frozen=True)
class Fit:
    """Coefficients, none negative, their standard errors, and the residuals as fractions of what was measured."""

    values: Floats
    errors: Floats
    residuals: Floats


def fit_non_negative(amounts: Floats, measured: Floats) -> Fit:
    """Return the x >= 0 that makes `amounts` x nearest to `measured` in relative terms: every row counts the same.

    Lawson and Hanson's active set. A coefficient that stays at 0 has no standard error (nan): its row of amounts is explained by
    the others.

    >>> fit = fit_non_negative(np.array([[1.0, 0.0], [1.0, 2.0], [0.0, 4.0]]), np.array([3.0, 13.0, 20.0]))
    >>> fit.values.round(6).tolist(), bool(abs(fit.residuals).max() < 1e-9)
    ([3.0, 5.0], True)
    """
    weighted = amounts / measured[:, None]
    scale = np.linalg.norm(weighted, axis=0)
    scale[scale == 0] = 1.0
    a, b = weighted / scale, np.ones(len(measured))
    x = np.zeros(a.shape[1])
    active = np.zeros(a.shape[1], bool)
    for _ in range(3 * a.shape[1] + 3):
        gradient = a.T @ (b - a @ x)
        gradient[active] = -np.inf
        if active.all() or gradient.max() <= 1e-12:
            break
        active[int(gradient.argmax())] = True
        while True:
            trial = np.zeros_like(x)
            trial[active] = np.linalg.lstsq(a[:, active], b, rcond=None)[0]
            if trial[active].min() > 0:
                x = trial
                break
            falling = active & (trial <= 0)
            x_falling, trial_falling = x[falling], trial[falling]
            step = float(np.min(x_falling / np.maximum(x_falling - trial_falling, 1e-300)))
            x = x + step * (trial - x)
            active &= x > 1e-14
            x[~active] = 0.0
            if not active.any():
                break
    residual = a @ x - b
    errors = np.full(len(x), np.nan)
    free = len(b) - int(active.sum())
    if active.any() and free > 0:
        variance = float(residual @ residual) / free
        covariance = variance * np.linalg.pinv(a[:, active].T @ a[:, active])
        errors[active] = np.sqrt(np.maximum(np.diag(covariance), 0.0)) / scale[active]
    return Fit(x / scale, errors, residual)
