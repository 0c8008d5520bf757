"""Decompositions for IREE's torch dialect: ops that its compiler lacks, gets wrong or runs slowly."""
