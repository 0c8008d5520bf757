"""Python control flow on tensors as one graph: `if`, `while`, `for`, `and`, `or`, `not`, `assert`.

The code of the functions that decide on a tensor is rewritten for as long as the model is traced
(`functions`, `syntax`); what it then calls (`operators`) is Python's own on Python values, and one op of the
graph on traced tensors (`regions`).
"""
