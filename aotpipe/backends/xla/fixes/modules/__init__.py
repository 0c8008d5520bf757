"""What is done to StableHLO modules of jaxlib's bindings for a CPU: each `apply` changes one in place."""
