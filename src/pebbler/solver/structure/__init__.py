"""Orders from the structure of a graph: walks, strips and recursive bisection. The caller prices them."""

from pebbler.solver.structure.order_search import OrderSearch

__all__ = ["OrderSearch"]
