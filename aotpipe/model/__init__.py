"""Owns what a user names: Spec and EntryPoint, references such as `model.py:NAME`, source lines.

May import core.
"""
