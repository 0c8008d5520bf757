"""What is rewritten after the compiler's first phase (`--compile-to=input`): each `apply` is a `Rewrite`."""
