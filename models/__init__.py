"""Models that the tests build, one a file; each exposes SPEC."""
