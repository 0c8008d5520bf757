"""Owns what a host needs that runs bundles: bundles, runners, workers, input checks, the store, the server.

May import core and model.source; never torch, never a compiler.
"""
