"""Runs PyTorch itself as the reference: as it is, in float64, and under a precision policy."""
