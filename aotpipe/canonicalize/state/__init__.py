"""Owns the state that a model keeps in Python between calls: finds it, and lifts it into buffers.

May import `inputs`, `trace` and `values`.
"""
