"""XLA: legal programs to StableHLO, to executables of XLA's compilers, and their runner."""
