"""Owns the rewriting of functions that decide on a tensor, for as long as their model is traced.

`statements` rewrites the syntax tree; `staging` swaps the code and begins the trace. Rewritten code
calls `operators`. May import `operators`, `trace`, `alias` and `values`.
"""
