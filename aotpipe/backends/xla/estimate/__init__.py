"""What an XLA program will cost on a chip that is not at hand."""
