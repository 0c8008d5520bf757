import pytest

from aotpipe.errors import BundleCorrupt, BundleNotFound
from aotpipe.runtime import bundle
from tests.unit.runtime.bundle import samples


@pytest.fixture
def made(tmp_path):
    return samples.packed(tmp_path / "b")


def test_a_bundle_as_packed(made):
    assert bundle.verify(made) == made.manifest


def test_every_file_is_checked(made):
    for name in made.manifest.files:
        samples.flip(made.path / name)
        with pytest.raises(BundleCorrupt, match=f"{name} is not the file that was packed"):
            bundle.verify(made)
        samples.flip(made.path / name)
    bundle.verify(made)


def test_all_problems_are_listed(made):
    (made.path / "goldens.safetensors").unlink()
    samples.flip(made.path / "weights.safetensors")
    (made.path / "programs" / "extra.vmfb").touch()
    with pytest.raises(BundleCorrupt, match="3 files of the bundle are not as packed") as caught:
        bundle.verify(made)
    assert sorted(caught.value.reason.splitlines()) == [
        "goldens.safetensors is missing",
        "programs/extra.vmfb was added",
        "weights.safetensors is not the file that was packed",
    ]


def test_a_dangling_link_is_an_added_file(made):
    (made.path / "link").symlink_to("nowhere")
    with pytest.raises(BundleCorrupt, match="link was added"):
        bundle.verify(made)


def test_no_bundle(tmp_path):
    with pytest.raises(BundleNotFound):
        bundle.verify(tmp_path)
