"""Runs `iree-compile` in processes of its own, and reads what it says."""
