"""Owns the comparison of a model that was written as PyTorch (`passes.codegen`) with the original.

`proof` makes the same calls of both; `loading` makes the written model; `coverage` counts which ways its
branches and loops went.
"""
