"""Workarounds for faults of IREE and of drivers."""
