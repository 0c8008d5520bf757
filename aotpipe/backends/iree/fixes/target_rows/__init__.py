"""What `aotpipe/core/targets.toml` says of a target in place of the compiler's own: without an `apply`."""
