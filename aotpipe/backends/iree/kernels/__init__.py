"""Dispatches that are written out in the vector dialect, where the compiler's own code for an op is slow."""
