"""Owns what a variable of a traced model may hold: host scalars, optional values, dynamic lists.

Also owns the `Trace` itself, and refuses with the user's line. May import core and model alone.
"""
