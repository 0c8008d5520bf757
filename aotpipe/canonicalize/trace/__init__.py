"""Owns how rewritten Python becomes one graph: regions, fixpoints, dry runs, asserts, torch functions.

May import `alias` and `values`.
"""
