"""The whole build, from a model to a bundle."""
