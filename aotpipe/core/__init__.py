"""Owns the values that all packages share: stage types, signatures, targets, dims, dtypes, precision.

May import aotpipe.errors alone.
"""
