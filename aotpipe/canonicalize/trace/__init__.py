"""Traces rewritten Python into one graph: regions, effects, fixpoints, host scalars, runtime asserts."""
