"""Order, residency and recomputation over several levels of memory, from mid-size to large graphs.

A plan is a sequence of ops plus, for every storage, the levels that hold a copy of its value at every moment. Given the
sequence, the cheapest residency of one storage in the room that the others leave is a shortest path; all of them together are
improved a few at a time, guided by Lagrangian prices of room, and exactly by CP-SAT where that is small enough. Around that,
the sequence itself is searched: blocks shift, ops run again where that is cheaper than keeping or reloading their results.
"""

from __future__ import annotations

from pebbler.solver.paging.demand_paging import program_order_plan
from pebbler.solver.paging.paging_solver import solve_paging

__all__ = ["program_order_plan", "solve_paging"]
