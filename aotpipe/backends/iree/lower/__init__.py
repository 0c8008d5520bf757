"""Lowers legal programs to the MLIR that IREE compiles."""
