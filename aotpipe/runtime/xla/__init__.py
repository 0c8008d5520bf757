"""Runs XLA programs with jaxlib alone."""
