"""Owns the writing of models as PyTorch that a person would review: from their source, or from their graphs.

`from_source` rewrites the functions in which a trace decided something; `from_graph` writes a class of what
torch.export gave. Nothing here runs what is written: `validate.rewritten` compares it with the
model. May import canonicalize and the other passes.
"""
