"""Facts that hold for every legal plan, as inequalities over what the referee counts: the parts of every certificate."""
