"""Runs IREE programs with the iree-base-runtime package alone."""
