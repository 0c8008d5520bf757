"""aotpipe: a PyTorch model in, verified programs for IREE out."""

__version__ = "0.1.0"
