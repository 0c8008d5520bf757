"""What docs/deploy shows names options that there are, and is taken by the tools that read it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from aotpipe.cli.serve import serve

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy"
KNOWN = {option for parameter in serve.params for option in parameter.opts}


def test_the_options_of_the_server_are_its_own() -> None:
    unit = re.search(r"^ExecStart=(.*)$", (DEPLOY / "aotpipe.service").read_text(), re.MULTILINE)
    entry = re.search(r"^ENTRYPOINT \[(.*)\]$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert unit
    assert entry
    for words in (shlex.split(unit[1]), re.findall(r'"([^"]*)"', entry[1])):
        assert words[1] == "serve"
        assert {word for word in words if word.startswith("--")} <= KNOWN


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "aotpipe.service").read_text().replace("/opt/aotpipe/bin/aotpipe", sys.executable)
    (tmp_path / "aotpipe.service").write_text(text)
    ran = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "aotpipe.service")], capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")


KUBERNETES = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


def test_the_parts_of_the_kubernetes_example_name_each_other() -> None:
    deployment, service, budget = KUBERNETES
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for selector in (
        deployment["spec"]["selector"]["matchLabels"],
        service["spec"]["selector"],
        budget["spec"]["selector"]["matchLabels"],
    ):
        assert selector == labels
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert {word for word in container["args"] if word.startswith("--")} <= KNOWN
    ports = {port["name"] for port in container["ports"]}
    assert {container[probe]["httpGet"]["port"] for probe in container if probe.endswith("Probe")} == ports
    assert {port["targetPort"] for port in service["spec"]["ports"]} == ports
    user = re.search(r"^USER (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert user
    assert str(deployment["spec"]["template"]["spec"]["securityContext"]["runAsUser"]) == user[1]


@pytest.mark.parametrize("resource", KUBERNETES, ids=[each["kind"] for each in KUBERNETES])
def test_the_kubernetes_example_fits_its_schemas(resource: dict[str, object]) -> None:
    pytest.importorskip("kubernetes_validate", reason="its schemas are 108 MB").validate(
        resource, "1.37", strict=True
    )
