"""Forms of convolutions that are fast on CPUs by IREE."""
