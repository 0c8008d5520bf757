from aotpipe.backends.xla.chips import chip
from aotpipe.targets import Target, table


def test_every_chip_that_may_not_be_there_is_known():
    for name in table():
        target = Target.parse(name)
        if target.backend == "xla":
            assert (chip(target) is None) == (target.device == "cpu"), name


def test_peaks_have_units_and_a_source():
    found = chip(Target.parse("xla-tpu-v5e"))
    assert found is not None
    assert (found.bf16, found.bandwidth, found.memory) == (197e12, 819e9, 16 * 2**30)
    assert found.source.startswith("https://")
    assert not found.config


def test_a_gpu_is_described_to_its_compiler():
    found = chip(Target.parse("xla-cuda-h100"))
    assert found is not None
    assert found.config.count("{") == found.config.count("}")
    assert "cuda_compute_capability { major: 9 minor: 0 }" in found.config
    assert 'name: "NVIDIA H100 80GB HBM3"' in found.config
