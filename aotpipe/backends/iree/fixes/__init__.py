"""Workarounds for faults of IREE and of drivers, each a module with a record (`aotpipe.core.fixes.Fix`).

A package is a stage, and says in what form its records' `apply` is: `graphs` before and while the importer
reads a graph, `torch_dialect` and `stablehlo` on lowered modules, `input_phase` on what the compiler's first
phase makes of them, `vm_phase` on what its last one makes, `flags` on the compiler's command line,
`target_rows` in the table of targets. `limits` are faults without a workaround.
"""
