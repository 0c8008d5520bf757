"""State that a model keeps in Python between calls: finds it, and lifts it into buffers."""
