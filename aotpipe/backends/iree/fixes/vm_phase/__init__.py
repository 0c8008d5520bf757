"""Changes what the compiler makes of a module last, before it writes the bytecode."""
