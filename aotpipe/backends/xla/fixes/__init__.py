"""Workarounds for faults of XLA, each a module with a record (`aotpipe.core.fixes.Fix`).

A package is a stage: `modules` on StableHLO modules before they are compiled.
"""
