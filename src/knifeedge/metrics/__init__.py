"""The edge benchmark: numpy and numba, never torch."""
