"""Runs models of which a part stays Python: a chain of programs and eager islands."""
