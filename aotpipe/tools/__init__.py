"""Owns what looks at a model beside building it: check, rewrite, recompiles, bisect, torch_compile.

May import every package but cli.
"""
