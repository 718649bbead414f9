"""What every op takes: time, energy, scratch memory."""
