"""Programs for calls that are smaller than they are: the true sizes are operands, the rest is padding.

Every value has the size of its bucket. Along each axis a prefix is what the model computes, or a product of
prefixes where axes were joined; what lies beyond is garbage. An op keeps to that by a rule of its own, which
keeps the garbage away from what is not: it masks what it sums, shifts what it joins, and counts by the true
size. An op without a rule is refused where padding would reach it, with the user's line: nothing is guessed.

    sizes.py  sizes: of the bucket and true ones
    rules.py  values with their axes, masks, and reshapes of both; what a rule for an op is given, and the
              rules that ops have in common; the others stand in backends/xla/ops
"""
