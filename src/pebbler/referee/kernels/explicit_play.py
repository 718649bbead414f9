"""The rules of explicit moves: plays the moves of a plan and stops at the first illegal one."""

from __future__ import annotations

import numpy as np

from pebbler.compiled import inner_kernel, kernel, separate_kernel
from pebbler.referee.kernels.explicit_game import (
    ALREADY_RAN,
    LEGAL,
    LOSES_NEEDED,
    NEVER_RAN,
    NOT_AT_END,
    NOT_FAST,
    NOT_MADE,
    NOT_PRESENT,
    NOT_STEADY,
    NOT_THERE,
    OVERFLOW,
    OVERWRITES_EARLY,
    OVERWRITES_UNMADE,
    RESULT_NOT_FAST,
    SAME_LEVEL,
    STALE_RESULT,
    Board,
)

__all__ = ["play"]

_BIT = np.int64(1)  # of the fastest level


@kernel
def play(game, moves, books):  # type: ignore[no-untyped-def]
    """Play all moves; return (reason, move, a, b, c), where `move` is -1 for the start and the number of moves for the end.

    `books` are filled as the game goes.
    """
    return _play(game, _set_up(game), moves, books)


@separate_kernel(_nrt=False)
def _play(game, board, moves, books):  # type: ignore[no-untyped-def]
    for at in range(len(game.capacity)):
        books.peak[at] = board.used[at]
        if board.used[at] > game.capacity[at]:
            return OVERFLOW, -1, at, board.used[at], 0
    crowded = -1  # the level whose result takes the room of what the next moves drop
    for i in range(len(moves.kind)):
        kind, subject, at = moves.kind[i], moves.subject[i], int(moves.level[i])
        if kind == 0:
            energy, reason, a, b, c = _compute(game, board, books, subject, at)
        else:
            value = board.current[subject]
            if value < 0 or not board.present[value] & (_BIT << at):
                return NOT_THERE, i, subject, at, 0
            if kind == 1:
                to = int(moves.to[i])
                if to == at:
                    return SAME_LEVEL, i, subject, at, 0
                energy = _copy(game, board, books, value, at, to)
                reason, at = LEGAL, to
            else:
                energy = 0.0
                reason, a, b, c = _drop(game, board, value, at)
        if reason != LEGAL:
            return reason, i, a, b, c
        books.by_kind[kind] += energy
        books.step_energy[i] = energy
        if game.over and kind == 0:
            crowded = at
        if crowded >= 0:
            if board.used[crowded] > game.capacity[crowded]:
                if i + 1 < len(moves.kind) and moves.kind[i + 1] == 2:
                    continue
                return OVERFLOW, i, crowded, board.used[crowded], 0
            books.peak[crowded] = max(books.peak[crowded], board.used[crowded])
            crowded = -1
        if board.used[at] > game.capacity[at]:
            return OVERFLOW, i, at, board.used[at], 0
        books.peak[at] = max(books.peak[at], board.used[at])
    reason, a, b, c = _refuse_end(game, board)
    return reason, len(moves.kind), a, b, c


@kernel
def _set_up(game):  # type: ignore[no-untyped-def]
    """Return the board at the start."""
    values, ops = len(game.size), len(game.cost)
    board = Board(
        game.start.copy(), np.zeros(values, np.bool_), np.zeros(values, np.bool_), np.zeros(values, np.bool_),
        np.zeros(ops, np.bool_), np.full(game.tensors, -1, np.int64), np.zeros(len(game.capacity), np.int64),
        np.empty(values + 1, np.int64),
    )  # fmt: skip
    for v in range(values):
        if game.maker[v] < 0:
            board.made[v] = True
            board.current[game.tensor[v]] = v
            for at in range(len(game.capacity)):
                if board.present[v] & (_BIT << at):
                    board.used[at] += game.size[v]
    return board


@inner_kernel
def _compute(game, board, books, op, at):  # type: ignore[no-untyped-def]
    """Run an op whose results go to level `at`; return its energy, and why it may not run."""
    reason, a, b, c = _refuse_compute(game, board, op, at)
    if reason != LEGAL:
        return 0.0, reason, a, b, c
    # Prices are those of the moment before anything is overwritten.
    energy = _pay_compute(game, board, books, op, at)
    first_run = not board.ran[op]
    board.ran[op] = True
    if first_run:
        reason, a, b, c = _overwrite(game, board, op)
        if reason != LEGAL:
            return energy, reason, a, b, c
    for k in range(game.writes_start[op], game.writes_start[op + 1]):
        v = game.writes[k]
        board.made[v] = True
        if first_run:
            board.current[game.tensor[v]] = v
        _put(game, board, v, at)
    if first_run:
        for k in range(game.destroys_start[op], game.destroys_start[op + 1]):
            v = game.destroys[k]
            if board.overwritten[v] and not board.lost[v]:
                gone, by = _lose(game, board, v)
                if gone >= 0:
                    return energy, LOSES_NEEDED, gone, by, v
    return energy, LEGAL, 0, 0, 0


@inner_kernel
def _refuse_compute(game, board, op, at):  # type: ignore[no-untyped-def]
    """Return the reason why an op may not run now, by its reads and its earlier runs."""
    if game.fastest_only and at != 0:
        return RESULT_NOT_FAST, op, at, 0
    if board.ran[op]:
        if game.once[op] or game.in_place[op]:
            return ALREADY_RAN, op, 0, 0
        for k in range(game.writes_start[op], game.writes_start[op + 1]):
            if board.overwritten[game.writes[k]]:
                return STALE_RESULT, game.writes[k], op, 0
    for k in range(game.reads_start[op], game.reads_start[op + 1]):
        v = game.reads[k]
        if not board.made[v]:
            return NOT_MADE, v, op, 0
        if board.present[v] == 0:
            return NOT_PRESENT, v, op, 0
        if game.fastest_only and not board.present[v] & _BIT:
            return NOT_FAST, v, op, 0
    return LEGAL, 0, 0, 0


@inner_kernel
def _pay_compute(game, board, books, op, at):  # type: ignore[no-untyped-def]
    """Return the cost of running an op now, and record it."""
    energy = game.cost[op]
    books.by_level[at] += energy
    if game.writes_start[op] < game.writes_start[op + 1]:
        books.by_tensor[game.tensor[game.writes[game.writes_start[op]]]] += energy
    else:
        books.by_tensor[game.tensor[game.reads[game.reads_start[op]]]] += energy
    if not game.fastest_only:
        for k in range(game.reads_start[op], game.reads_start[op + 1]):
            v = game.reads[k]
            source = 0
            while not board.present[v] & (_BIT << source):
                source += 1
            paid = game.size[v] * game.read_price[source]
            energy += paid
            books.by_level[source] += paid
            books.by_tensor[game.tensor[v]] += paid
        for k in range(game.writes_start[op], game.writes_start[op + 1]):
            v = game.writes[k]
            paid = game.size[v] * game.write_price[at]
            energy += paid
            books.by_level[at] += paid
            books.by_tensor[game.tensor[v]] += paid
    books.by_op[op] += energy
    return energy


@inner_kernel
def _overwrite(game, board, op):  # type: ignore[no-untyped-def]
    """Destroy the old versions that an op overwrites when it runs first; return why it may not."""
    for k in range(game.destroys_start[op], game.destroys_start[op + 1]):
        v = game.destroys[k]
        if not board.made[v]:
            return OVERWRITES_UNMADE, v, game.maker[v], op
        pending = -1
        for j in range(game.readers_start[v], game.readers_start[v + 1]):
            if not board.ran[game.readers[j]]:
                pending = game.readers[j]
                break
        if pending >= 0:
            if game.ignore_war:
                continue
            return OVERWRITES_EARLY, v, pending, op
        for at in range(len(game.capacity)):
            if board.present[v] & (_BIT << at):
                board.used[at] -= game.size[v]
        board.present[v] = 0
        board.overwritten[v] = True
        if board.current[game.tensor[v]] == v:
            board.current[game.tensor[v]] = -1
    return LEGAL, 0, 0, 0


@inner_kernel
def _copy(game, board, books, v, at, to):  # type: ignore[no-untyped-def]
    """Copy a value from one level to another; return the energy."""
    out, into = game.size[v] * game.read_price[at], game.size[v] * game.write_price[to]
    books.by_level[at] += out
    books.by_level[to] += into
    books.by_tensor[game.tensor[v]] += out + into
    _put(game, board, v, to)
    return out + into


@inner_kernel
def _put(game, board, v, at):  # type: ignore[no-untyped-def]
    """Let a level hold a copy of a value, if it does not yet."""
    if not board.present[v] & (_BIT << at):
        board.present[v] |= _BIT << at
        board.used[at] += game.size[v]


@inner_kernel
def _drop(game, board, v, at):  # type: ignore[no-untyped-def]
    """Forget a copy; return why the value cannot be spared."""
    board.present[v] ^= _BIT << at
    board.used[at] -= game.size[v]
    if board.present[v] == 0 and not _recoverable(game, board, v):
        gone, by = _lose(game, board, v)
        if gone >= 0:
            return LOSES_NEEDED, gone, by, v
    return LEGAL, 0, 0, 0


@inner_kernel
def _recoverable(game, board, v):  # type: ignore[no-untyped-def]
    """Whether an absent value can still be computed again."""
    op = game.maker[v]
    if op < 0 or game.once[op] or game.in_place[op]:
        return False
    for k in range(game.writes_start[op], game.writes_start[op + 1]):
        if board.overwritten[game.writes[k]]:
            return False
    for k in range(game.reads_start[op], game.reads_start[op + 1]):
        if board.lost[game.reads[k]]:
            return False
    return True


@inner_kernel
def _lose(game, board, first):  # type: ignore[no-untyped-def]
    """Mark `first` as gone for good with everything that could only be recomputed from it.

    Returns the first value found that is still needed and the op that needs it (-1: the end), or -1, -1.
    """
    needed, by = -1, -1
    board.lost[first] = True
    board.stack[0] = first
    top = 1
    while top > 0:
        top -= 1
        v = board.stack[top]
        if needed < 0:
            for k in range(game.readers_start[v], game.readers_start[v + 1]):
                if not board.ran[game.readers[k]]:
                    needed, by = v, game.readers[k]
                    break
            if needed < 0 and game.survives[v]:
                needed = v
        for k in range(game.readers_start[v], game.readers_start[v + 1]):
            top = _lose_results(game, board, game.readers[k], top)
        if board.overwritten[v] and game.maker[v] >= 0:
            # Its maker can never run again, so what else it made cannot be had again either.
            top = _lose_results(game, board, game.maker[v], top)
    return needed, by


@inner_kernel
def _lose_results(game, board, op, top):  # type: ignore[no-untyped-def]
    """Put the absent results of an op that cannot run again on the stack of losses; return its new top."""
    for k in range(game.writes_start[op], game.writes_start[op + 1]):
        v = game.writes[k]
        if board.made[v] and board.present[v] == 0 and not board.lost[v]:
            board.lost[v] = True
            board.stack[top] = v
            top += 1
    return top


@inner_kernel
def _refuse_end(game, board):  # type: ignore[no-untyped-def]
    """Return the first requirement that is not met when all moves are played."""
    for op in range(len(game.cost)):
        if not board.ran[op]:
            return NEVER_RAN, op, 0, 0
    for v in range(len(game.size)):
        if game.survives[v] and board.present[v] == 0:
            return NOT_AT_END, v, 0, 0
    if game.steady:
        for k in range(len(game.param_start)):
            ends, starts = board.present[game.param_end[k]], game.start[game.param_start[k]]
            if ends != starts:
                return NOT_STEADY, game.param_end[k], ends, starts
    return LEGAL, 0, 0, 0
