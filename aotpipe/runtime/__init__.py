"""Owns what a host needs that runs bundles: the bundle itself, runners, workers, input checks, the store.

May import core and model.source; never torch, never a compiler.
"""
