from aotpipe.backends.xla.estimate.chips import chip
from aotpipe.core.targets import Target, table


def test_every_chip_that_may_not_be_there_is_known():
    for name in table():
        target = Target.parse(name)
        if target.backend == "xla":
            assert (chip(target) is None) == (target.device == "cpu"), name


def test_peaks_have_units_and_a_source():
    found = chip(Target.parse("xla-tpu-v5e"))
    assert found is not None
    assert (found.rates["bfloat16"], found.bandwidth, found.memory) == (197e12, 819e9, 16 * 2**30)
    assert found.source.startswith("https://")
    assert not found.config


def test_a_gpu_is_described_to_its_compiler():
    found = chip(Target.parse("xla-cuda-h100"))
    assert found is not None
    assert found.config.count("{") == found.config.count("}")
    assert "cuda_compute_capability { major: 9 minor: 0 }" in found.config
    assert 'name: "NVIDIA H100 80GB HBM3"' in found.config


def test_a_device_that_is_half_of_a_chip_has_half_of_its_peaks():
    found = chip(Target.parse("xla-tpu-v7x"))
    assert found is not None
    assert (found.rates["bfloat16"], found.bandwidth, found.memory) == (2307e12 / 2, 3690e9, 96 * 2**30)


def test_what_a_chip_lacks_runs_at_the_rate_of_what_it_is_widened_to():
    found = chip(Target.parse("xla-cuda-t4"))
    assert found is not None
    assert found.rate("bfloat16") == found.rates["float32"]
    assert found.rate("complex64") is None
