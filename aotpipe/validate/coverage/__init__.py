"""Finds out which branches, trips and sizes the planned calls reach, and looks for calls that reach the others."""
