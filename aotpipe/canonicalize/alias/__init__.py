"""Alias analysis of a trace: which tensors share memory in eager, and which names must see a write."""
