"""Owns what a call of an entry point takes and gives: names of leaves, dims, one flat layout for all calls.

May import `operators`, `trace` and `values`.
"""
