"""Inputs of an entry point: pytrees, names of leaves, dynamic shapes, one flat structure for all calls."""
