"""Models of packages that nobody here had prepared, built with no edit by `python -m tests.wild`."""
