"""Owns alias analysis: which tensors share storage in eager, which names must see a write, what changes.

May import `values`.
"""
