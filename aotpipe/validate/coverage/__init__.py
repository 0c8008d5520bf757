"""Finds out what of a model the planned calls reach, and looks for calls that reach the rest."""
