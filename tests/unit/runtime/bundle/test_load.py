import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import aotpipe
from aotpipe.core.targets import Target
from aotpipe.errors import (
    AotpipeError,
    BundleCorrupt,
    BundleNotFound,
    IncompatibleHost,
    InputDtype,
    MissingWeight,
    NoProgram,
    UnsupportedSchema,
)
from aotpipe.runtime import bundle, tensor_file, toolchain
from aotpipe.runtime.bundle import manifest as manifests
from tests.unit.runtime.bundle import samples

PROGRAM = f"programs/{samples.VMVX}/program.vmfb"


@pytest.fixture
def root(tmp_path):
    return Path(samples.packed(tmp_path / "b").path)


@pytest.mark.parametrize("verify", [True, False])
def test_a_bundle_runs(root, verify):
    with aotpipe.load(root, verify=verify) as runner:
        first = runner.infer(samples.call())
        assert first["y"].tolist() == [[0, 1, 2, 3]] * 2
        assert runner.infer({"x": np.ones(4, np.float32)}, entry_point="decode")["count"] == 1
        runner.reset()
        assert runner.infer(samples.call())["y"].tolist() == first["y"].tolist()
        assert [str(spec) for spec in runner.signature.tensor_outputs] == [
            "y: float32[batch, 4]",
            "positive: bool[batch]",
        ]
        with pytest.raises(InputDtype):
            runner.infer({**samples.call(), "x": np.ones((2, 4))})


def test_the_target_is_chosen_or_named(tmp_path):
    both = [samples.validated(), samples.validated(samples.HOST, "llvm-cpu")]
    made = samples.packed(tmp_path / "b", programs=both)
    assert bundle.load.__module__ == "aotpipe.runtime.bundle.load"
    choose = sys.modules["aotpipe.runtime.bundle.load"].choose
    assert choose(made.manifest).target == samples.HOST
    assert choose(made.manifest, samples.VMVX).target == samples.VMVX
    for target in (samples.HOST, samples.VMVX):
        with aotpipe.load(made, target=target) as runner:
            assert runner.infer(samples.call())["y"].shape == (2, 4)


def test_a_program_for_a_better_cpu_is_passed_over(tmp_path):
    greedy = samples.validated(samples.HOST, "llvm-cpu", needs=(*toolchain.host_features(), "avx1024"))
    made = samples.packed(tmp_path / "b", programs=[greedy, samples.validated()])
    with aotpipe.load(made):
        pass
    with pytest.raises(IncompatibleHost) as caught:
        aotpipe.load(made, target=samples.HOST)
    assert caught.value.reason == "this CPU lacks avx1024"
    assert caught.value.hint == "load one that runs here: iree-vmvx"
    only = samples.packed(tmp_path / "only", programs=[greedy])
    with pytest.raises(IncompatibleHost, match="no program of the bundle can run") as caught:
        aotpipe.load(only)
    assert "iree-cpu-host: this CPU lacks avx1024" in caught.value.reason


LEVELS = ("iree-cpu-x86_64", "iree-cpu-x86_64_v2", "iree-cpu-x86_64_v3", "iree-cpu-x86_64_v4")


@pytest.mark.parametrize(("level", "chosen"), [(0, 0), (1, 1), (2, 2), (3, 3)])
def test_the_best_level_that_the_cpu_has_is_taken(tmp_path, monkeypatch, level, chosen):
    made = samples.packed(
        tmp_path / "b", programs=[samples.validated(samples.VMVX), *map(samples.validated, LEVELS)]
    )
    features = ("x86_64", *Target.parse(LEVELS[level]).row.features)
    monkeypatch.setattr(toolchain, "host_features", lambda: features)
    load = sys.modules["aotpipe.runtime.bundle.load"]
    assert load.choose(made.manifest).target == LEVELS[chosen]
    for target in LEVELS[level + 1 :]:
        with pytest.raises(IncompatibleHost, match="cannot run on this host") as caught:
            load.choose(made.manifest, target)
        assert "this CPU lacks " in caught.value.reason


def test_a_variant_is_taken_where_the_cpu_has_what_it_needs(tmp_path, monkeypatch):
    _, lower, middle, best = LEVELS
    variants = (samples.validated(best),)
    made = samples.packed(tmp_path / "b", programs=[replace(samples.validated(middle), variants=variants)])
    load = sys.modules["aotpipe.runtime.bundle.load"]

    def on(level):
        features = ("x86_64", *Target.parse(level).row.features)
        monkeypatch.setattr(toolchain, "host_features", lambda: features)

    on(best)
    assert load.choose(made.manifest).target == middle
    assert load.fitting(load.choose(made.manifest, middle)).target == best
    assert load.choose(made.manifest, best).file == f"programs/{best}/program.vmfb"
    on(middle)
    assert load.fitting(load.choose(made.manifest, middle)).target == middle
    with pytest.raises(IncompatibleHost):
        load.choose(made.manifest, best)
    on(lower)
    with pytest.raises(IncompatibleHost):
        load.choose(made.manifest, middle)


def test_the_variant_is_what_is_loaded(tmp_path, monkeypatch):
    """The target's own program is none that the runtime knows: only the variant's can be loaded."""
    own, variant = samples.validated(), samples.validated(samples.HOST, "llvm-cpu")
    broken = replace(own, compiled=replace(own.compiled, payload=b"no program"), variants=(variant,))
    made = samples.packed(tmp_path / "b", programs=[broken])
    with aotpipe.load(made) as runner:
        runner.infer(samples.call())
    with pytest.raises(AotpipeError):
        aotpipe.load(made, variants=False)


def test_another_architecture_is_named(tmp_path):
    made = samples.packed(tmp_path / "b", programs=[samples.validated("iree-cpu-riscv64")])
    with pytest.raises(IncompatibleHost) as caught:
        aotpipe.load(made, target="iree-cpu-riscv64")
    assert "it runs on riscv64, and this machine is" in caught.value.reason


def test_another_version_of_the_runtime(tmp_path):
    old = samples.validated(toolchain={"iree-base-compiler": "3.2.1"})
    made = samples.packed(tmp_path / "b", programs=[old])
    with pytest.raises(IncompatibleHost) as caught:
        aotpipe.load(made, target=samples.VMVX)
    assert "compiled by iree-base-compiler 3.2.1; this host has iree-base-runtime 3." in caught.value.reason


def test_no_program_lists_what_there_is(root):
    with pytest.raises(NoProgram, match="no program for 'iree-cpu-host'") as caught:
        aotpipe.load(root, target="iree-cpu-host")
    assert caught.value.reason == "it has: iree-vmvx (executed), iree-cpu-x86_64 (failed)"
    with pytest.raises(NoProgram) as caught:
        aotpipe.load(root, target="iree-cpu-x86_64")
    assert caught.value.reason == "it failed in compile: it crashed"


def test_a_bundle_without_programs(tmp_path):
    with pytest.raises(NoProgram, match="the bundle has no program"):
        aotpipe.load(samples.packed(tmp_path / "b", programs=[]))


def test_a_target_of_a_later_release_is_passed_over(root):
    def later(content):
        content["programs"][1].update(target="iree-moon", file=PROGRAM, status="compiled")

    samples.rewrite_manifest(root, later)
    with aotpipe.load(root):
        pass
    with pytest.raises(IncompatibleHost) as caught:
        aotpipe.load(root, target="iree-moon")
    assert "does not know the target iree-moon" in caught.value.reason


def test_no_bundle(tmp_path):
    with pytest.raises(BundleNotFound):
        aotpipe.load(tmp_path / "nowhere")
    with pytest.raises(BundleNotFound):
        aotpipe.load(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(BundleNotFound):
        aotpipe.load(tmp_path / "file")


@pytest.mark.parametrize("name", ["manifest.json", PROGRAM, "weights.safetensors"])
@pytest.mark.parametrize("offset", [0, 9, 500, -1])
def test_a_flipped_byte_is_found(root, name, offset):
    path = root / name
    samples.flip(path, offset if abs(offset) < path.stat().st_size else -2)
    with pytest.raises(BundleCorrupt):
        aotpipe.load(root)


@pytest.mark.parametrize("name", [PROGRAM, "weights.safetensors"])
def test_a_missing_or_truncated_file_is_named(root, name):
    path = root / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BundleCorrupt, match=name):
        aotpipe.load(root)
    path.unlink()
    for verify in (True, False):
        with pytest.raises(BundleCorrupt, match=f"{name} is missing"):
            aotpipe.load(root, verify=verify)


def test_a_foreign_schema(root):
    samples.rewrite_manifest(root, lambda content: content.update(schema=2))
    with pytest.raises(UnsupportedSchema):
        aotpipe.load(root)


@pytest.mark.parametrize("lost", ["weight", "state/total"])
def test_a_missing_weight_is_named(root, lost):
    kept = {name: np.array(array) for name, array in tensor_file.read(root / "weights.safetensors").items()}
    del kept[lost]
    tensor_file.write(kept, root / "weights.safetensors")
    with pytest.raises(BundleCorrupt):
        aotpipe.load(root)
    with pytest.raises(MissingWeight, match=lost.removeprefix("state/")):
        aotpipe.load(root, verify=False)


def test_several_files_of_weights_are_loaded_as_one(tmp_path):
    made = samples.packed(tmp_path / "b", weights=samples.weight_files(most_bytes=16))
    packed = bundle.archive(made, tmp_path / "b.tar")
    assert len(made.manifest.weight_files) == 3
    for path in (made.path, packed):
        for options in ({}, {"verify": False}, {"check": "goldens"}):
            with aotpipe.load(path, **options) as runner:
                assert runner.infer(samples.call(1))["y"].tolist() == [[0, 1, 2, 3]]
        assert bundle.selftest(path).passed


@pytest.mark.parametrize("place", range(3))
def test_every_file_of_weights_is_hashed_and_needed(tmp_path, place):
    root = samples.packed(tmp_path / "b", weights=samples.weight_files(most_bytes=16)).path
    name = bundle.open_bundle(root).manifest.weight_files[place]
    samples.flip(root / name)
    with pytest.raises(BundleCorrupt, match=f"{name} is not the file that was packed"):
        aotpipe.load(root)
    samples.rewrite_manifest(root, lambda content: content["files"].pop(name))
    (root / name).unlink()
    with pytest.raises(MissingWeight):
        aotpipe.load(root)


def test_an_array_that_two_files_of_weights_have_is_refused(root):
    """Of a forged bundle: it would depend on their order which one is used."""
    other = "weights-00001-of-00001.safetensors"
    shutil.copy(root / "weights.safetensors", root / other)
    samples.rewrite_manifest(
        root, lambda content: content["files"].update({other: content["files"]["weights.safetensors"]})
    )
    with pytest.raises(BundleCorrupt, match="do not fit together"):
        aotpipe.load(root)


def test_a_manifest_without_a_file_of_weights_is_refused(root):
    (root / "weights.safetensors").unlink()
    samples.rewrite_manifest(root, lambda content: content["files"].pop("weights.safetensors"))
    with pytest.raises(BundleCorrupt, match="the bundle has no file of weights"):
        aotpipe.load(root)


def test_a_weight_that_the_manifest_does_not_list_is_missed_by_the_program(root):
    tensor_file.write({"state/" + k: v for k, v in samples.programs.accumulate_state().items()}, root / "w")
    shutil.move(root / "w", root / "weights.safetensors")
    samples.rewrite_manifest(root, lambda content: content.update(weights=[]))
    with pytest.raises(MissingWeight, match="'weight'"):
        aotpipe.load(root, verify=False)


def test_garbage_with_a_fitting_digest_is_still_refused(root):
    import hashlib

    def forge(name):
        data = b"\0" * 4096
        (root / name).write_bytes(data)
        entry = {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
        samples.rewrite_manifest(root, lambda content: content["files"].update({name: entry}))

    forge(PROGRAM)
    with pytest.raises(BundleCorrupt, match="no IREE program"):
        aotpipe.load(root)
    forge("weights.safetensors")
    with pytest.raises(BundleCorrupt, match=r"weights.safetensors holds no arrays"):
        aotpipe.load(root)


def test_what_is_loaded_is_what_was_checked(root, monkeypatch):
    """A file that is replaced after its bytes were hashed changes nothing."""
    parse = tensor_file.parse

    def replaced_meanwhile(content):
        (root / "weights.safetensors").write_bytes(b"\0" * content.size)
        return parse(content)

    monkeypatch.setattr(tensor_file, "parse", replaced_meanwhile)
    with aotpipe.load(root) as runner:
        assert runner.infer(samples.call(1))["y"].tolist() == [[0, 1, 2, 3]]


def test_weights_are_not_copied_twice(root):
    with aotpipe.load(root) as runner:
        assert all(not array.flags.writeable for array in runner._weights.values())


def test_it_imports_neither_torch_nor_a_compiler(root):
    code = (
        "import sys, aotpipe\n"
        f"aotpipe.load({str(root)!r}).close()\n"
        "assert not {'torch', 'iree.compiler', 'jinja2'} & set(sys.modules)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(aotpipe.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_the_manifest_names_no_folder_of_the_builder(root):
    assert "somebody" not in (root / manifests.FILE_NAME).read_text()


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(
    "array", [np.zeros(4, np.int32), np.zeros((2, 2), np.float32)], ids=["dtype", "shape"]
)
def test_weights_of_another_dtype_or_shape_do_not_reach_the_runtime(root, monkeypatch, verify, array):
    """Of a forged bundle, whose digests fit."""
    [shard] = samples.weight_files(weight=array)
    entry = {"sha256": shard.sha256, "size_bytes": shard.size_bytes}
    shard.path.replace(root / "weights.safetensors")
    samples.rewrite_manifest(root, lambda content: content["files"].update({"weights.safetensors": entry}))
    monkeypatch.setattr("aotpipe.runtime.iree.runtime.load", None)
    with pytest.raises(BundleCorrupt, match=r"'weight' is .*, not float32\[4\]"):
        aotpipe.load(root, verify=verify)
