"""Owns what rewritten Python calls: Python's own meaning on plain values, ops of the graph on traced ones.

May import `trace`, `alias` and `values`.
"""
