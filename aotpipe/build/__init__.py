"""Owns the chain of stages, from a request to a bundle and its report: the one place that knows their order.

May import every package but tools and cli.
"""
