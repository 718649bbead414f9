"""Facts about plans of a graph as it is, as formulas and as programs in 0-1 variables, with which certificates prove bounds."""
