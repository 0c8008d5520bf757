"""What is rewritten in a module of the torch dialect before it is compiled: each `apply` is a `Rewrite`."""
