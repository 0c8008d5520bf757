"""torch's own OpInfo samples against IREE: every op x dtype is exported, legalized, compiled, run, compared.

`python -m tests.opinfo` prints the table op x dtype. A verdict is one of `equal`, `refused` (before any
compiler ran, with a reason), `WRONG`, `failed` (the importer or the compiler), `crashed`, and `export`
(torch.export itself does not take the sample).
"""
