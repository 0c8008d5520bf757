"""What is counted in a program's text."""

from __future__ import annotations

from aotpipe.backends.xla.estimate.collectives import counted

_TEXT = """
HloModule jit_forward, num_partitions=4
%region (a: f32[], b: f32[]) -> f32[] {
  ROOT %add = f32[] add(%a, %b)
}
ENTRY %main {
  %all-reduce.1 = f32[8,8]{1,0:T(8,128)} all-reduce(%dot), channel_id=1, to_apply=%region
  %ag = (f32[2]{0}, f32[8]{0}) all-gather-start(%p), dimensions={0}
  %done = f32[8]{0} all-gather-done(%ag)
  %x = f32[8]{0} fusion(%all-reduce.1), kind=kLoop, metadata={op_name="all-reduce"}
  %collective-permute-start = (f32[2], f32[2], u32[], u32[]) collective-permute-start(%x)
  ROOT %rs = f32[2]{0} reduce-scatter(%done), dimensions={0}
}
"""


def test_instructions_are_counted_and_not_their_names() -> None:
    assert counted(_TEXT) == {
        "all-reduce": 1,
        "all-gather": 1,
        "reduce-scatter": 1,
        "collective-permute": 1,
    }
    assert counted("") == {}
