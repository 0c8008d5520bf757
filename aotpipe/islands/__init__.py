"""Owns eager islands at build time: marks them in a trace, and cuts legal programs into segments.

May import passes and what is below; `aotpipe.runtime.islands` runs the result.
"""
