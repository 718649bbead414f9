"""The referee: legality and cost of plans, independent of any solver."""

from pebbler.referee import (
    known_prices as known_prices,
)  # whoever imports a kernel of the referee: it is tried before it prices
