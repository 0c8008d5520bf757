import json
import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotpipe.core.precision import Precision
from aotpipe.core.signature import Constant, Signature, Symbol, TensorSpec
from aotpipe.core.stages import Finding, Schedule
from aotpipe.errors import BundleCorrupt, SourceLine, UnsupportedSchema
from aotpipe.runtime.bundle import manifest as manifests
from aotpipe.runtime.bundle.manifest import EntryPoint, File, Manifest, ParitySummary, Program, read, write
from tests.unit.core.test_estimate import SAMPLE
from tests.unit.runtime.islands.test_chain import PARTS

SHA = "0f" * 32
MANIFEST = Manifest(
    name="tiny",
    entry_points={
        "forward": EntryPoint(
            signature=Signature(
                inputs=(TensorSpec("x", "float32", ("2*n", 4), (-1.0, 1.5)), Constant("causal", True)),
                outputs=(TensorSpec("output", "bfloat16", ("n",)), Constant("n", None)),
                state=(TensorSpec("count", "int64", ()),),
                symbols=(Symbol("n", 1, None),),
            ),
            asserts=("n must be even",),
        )
    },
    weights=("l.bias", "l.weight"),
    programs=(
        Program(
            target="iree-vmvx",
            status="executed",
            file="programs/iree-vmvx/program.vmfb",
            flags=("--a", "--b=c d"),
            toolchain={"torch": "2.13.0"},
            host_features=("x86_64", "avx2"),
            digest=SHA,
            notes=("a note",),
            parity=ParitySummary(
                calls=3,
                rule="4 x eager",
                entry_point="forward",
                case="seed 0",
                output="output",
                ratio=math.inf,
                max_abs_error=1e-7,
                eager_abs_error=0.0,
            ),
        ),
        Program(target="iree-cpu-host", status="failed", stage="compile", reason="no"),
    ),
    findings=(
        Finding(severity="note", code="unused-input", message="ünused", where=SourceLine("m.py", 3)),
        Finding(severity="warning", code="other", message="m", entry_point="forward"),
    ),
    files={"programs/iree-vmvx/program.vmfb": File(sha256=SHA, size_bytes=12)},
)


def changed(change):
    content = json.loads(write(MANIFEST))
    change(content)
    content.pop("digest", None)
    return manifests._dump({**content, "digest": manifests._digest(content)})


def test_what_is_written_is_read():
    assert read(write(MANIFEST)) == MANIFEST
    assert json.loads(write(MANIFEST))["digest"] == MANIFEST.digest


def test_parts_are_there_where_a_model_has_islands_and_nowhere_else():
    assert "parts" not in json.loads(write(MANIFEST))
    cut = replace(MANIFEST, parts=PARTS)
    assert read(write(cut)) == cut
    assert read(write(cut)).digest != MANIFEST.digest


def test_a_precision_is_there_where_something_takes_fewer_bits():
    assert "precision" not in json.loads(write(MANIFEST))
    narrow = replace(MANIFEST, precision=Precision("bfloat16", ("gelu",)))
    assert json.loads(write(narrow))["precision"] == {"dtype": "bfloat16", "keep": ["gelu"]}
    assert read(write(narrow)) == narrow


def test_estimates_are_there_where_something_says_them_and_nowhere_else():
    assert all("estimates" not in program for program in json.loads(write(MANIFEST))["programs"])
    first, *rest = MANIFEST.programs
    told = replace(MANIFEST, programs=(replace(first, estimates=(SAMPLE,)), *rest))
    assert read(write(told)) == told


def test_a_schedule_is_there_where_the_compiler_says_it():
    assert all("schedule" not in program for program in json.loads(write(MANIFEST))["programs"])
    first, *rest = MANIFEST.programs
    counts = Schedule(dispatches=7, kernels=6, copies=1, fills=0, waits=2, allocated_bytes=4096)
    told = replace(MANIFEST, programs=(replace(first, schedule=counts), *rest))
    assert read(write(told)) == told


def test_variants_are_there_where_a_program_has_them_and_nowhere_else():
    assert all("variants" not in program for program in json.loads(write(MANIFEST))["programs"])
    first, *rest = MANIFEST.programs
    better = replace(first, target="iree-cpu-host", host_features=("x86_64", "avx512f"))
    told = replace(MANIFEST, programs=(replace(first, variants=(better,)), *rest))
    assert read(write(told)) == told
    assert "variants" not in json.loads(write(told))["programs"][0]["variants"][0]


def test_a_variant_names_files_of_the_bundle_only():
    first, *rest = MANIFEST.programs
    for name in ("../elsewhere", "programs/iree-cpu-host/program.vmfb"):
        told = replace(MANIFEST, programs=(replace(first, variants=(replace(first, file=name),)), *rest))
        with pytest.raises(BundleCorrupt, match="not a manifest"):
            read(write(told))


@given(
    name=st.text(st.characters(exclude_categories=["Cs"])),
    messages=st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
    ratio=st.floats(allow_nan=False),
)
def test_any_text_and_number_is_read_back(name, messages, ratio):
    summary = ParitySummary(
        calls=1,
        rule=name,
        entry_point="f",
        case="c",
        output="o",
        ratio=ratio,
        max_abs_error=0.1,
        eager_abs_error=0,
    )
    manifest = Manifest(
        name=name,
        entry_points={},
        weights=tuple(messages),
        programs=(Program(target="t", status="failed", parity=summary),),
        findings=(),
        files={},
    )
    assert read(write(manifest)) == manifest


def test_a_nan_travels():
    [program, _] = MANIFEST.programs
    data = changed(lambda content: content["programs"][0]["parity"].update(ratio="nan"))
    assert math.isnan(read(data).programs[0].parity.ratio)
    assert program.parity.ratio == math.inf


@given(st.data())
def test_a_byte_that_differs_is_found(data):
    good = write(MANIFEST)
    place = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises((BundleCorrupt, UnsupportedSchema)):
        read(bytes(bad))


@pytest.mark.parametrize("cut", [0, 1, 100, -1])
def test_a_truncated_file(cut):
    with pytest.raises(BundleCorrupt):
        read(write(MANIFEST)[:cut])


@pytest.mark.parametrize(
    "data", [b"[]", b"3", b"null", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"schema": NaN}', b'{"schema": 1}']
)
def test_what_is_no_manifest(data):
    with pytest.raises((BundleCorrupt, UnsupportedSchema)):
        read(data)


def test_nan_and_half_surrogates_are_refused():
    for text in ('{"schema": 1, "x": NaN}', '{"schema": 1, "x": "\\ud800"}', '{"schema": 1, "x": 1e999}'):
        with pytest.raises(BundleCorrupt):
            read(text.encode())


@pytest.mark.parametrize("schema", [0, 2, 999, "1", None])
def test_a_foreign_schema_is_named(schema):
    with pytest.raises(UnsupportedSchema, match=f"schema {schema!r}"):
        read(changed(lambda content: content.update(schema=schema)))


@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        "/etc/passwd",
        "programs/../../outside",
        "a//b",
        "./a",
        "",
        ".hidden",
        "a/..",
        "c:\\x",
        "a\\b",
        "a\nb",
        "a/b/",
        "manifest.json",
        "programs/net.py",
        "programs/libc.so.6",
    ],
)
def test_only_plain_names_below_the_bundle_are_files(name):
    data = changed(lambda content: content["files"].update({name: {"sha256": SHA, "size_bytes": 1}}))
    with pytest.raises(BundleCorrupt, match="it names what is no file"):
        read(data)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("files"),
        lambda content: content.update(weights="w"),
        lambda content: content["programs"][0].update(status="great"),
        lambda content: content["programs"][0].update(file="programs/other.vmfb"),
        lambda content: content["files"].update(a={"sha256": "0", "size_bytes": 1}),
        lambda content: content["entry_points"].update(f=3),
        lambda content: content["entry_points"]["forward"].update(signature={"inputs": ["x"]}),
        lambda content: content["findings"][0].update(where={"path": "m.py"}),
    ],
)
def test_a_manifest_of_another_form(change):
    with pytest.raises(BundleCorrupt):
        read(changed(change))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: content.pop("files"), r"^files: Field required"),
        (
            lambda content: content["programs"][0].update(status="great"),
            r"^programs\.0\.status: .*'executed'",
        ),
        (
            lambda content: content["programs"][0]["parity"].update(calls="many"),
            r"^programs\.0\.parity\.calls: ",
        ),
        (lambda content: content["files"].update(a=None), r"^files\.a: "),
        (
            lambda content: content["entry_points"]["forward"]["signature"].update(state=["count: f[2]"]),
            r"^entry_points\.forward\.signature\.state\.0: .*not a tensor",
        ),
        (
            lambda content: content["entry_points"]["forward"]["signature"].update(symbols=[3]),
            r"^entry_points\.forward\.signature\.symbols\.0: .*not int",
        ),
        (lambda content: content.update(parts={"chains": {"forward": {"steps": [{}]}}}), r"^parts\."),
        (lambda content: content["findings"][0].update(where=["m.py"]), r"^findings\.0\.where"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(change, reason):
    with pytest.raises(BundleCorrupt) as caught:
        read(changed(change))
    assert re.search(reason, caught.value.reason)
    assert "\n" not in caught.value.reason


def test_fields_of_a_later_release_are_ignored():
    def later(content):
        content["signed_by"] = "somebody"
        content["programs"][0]["speed"] = 3

    assert read(changed(later)) == MANIFEST


def test_entry_points_keep_their_order():
    entry = MANIFEST.entry_points["forward"]
    order = ["prefill", "decode", "again"]
    data = write(replace(MANIFEST, entry_points=dict.fromkeys(order, entry)))
    assert list(read(data).entry_points) == order
    assert write(read(data)) == data


def test_other_keys_that_are_moved_are_found():
    content = json.loads(write(MANIFEST))
    moved = dict(reversed(content.items()))
    with pytest.raises(BundleCorrupt, match="was changed"):
        read((json.dumps(moved, indent=2, ensure_ascii=False) + "\n").encode())
