"""The image and the cluster of contrib/container, as far as they can be looked at without an engine for containers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from nsqtw.cli.verbs import VERBS
from nsqtw.options.admin import NSQADMIN_READER
from nsqtw.options.command_line import NSQD_READER, OptionReader
from nsqtw.options.lookupd import NSQLOOKUPD_READER
from tests.admin.process import AdminProcess
from tests.process import LookupdProcess, NsqdProcess
from tests.wire import HOST

CONTAINER = Path(__file__).parent.parent / "contrib/container"
READERS: dict[str, OptionReader[Any, Any]] = {
    "nsqd": NSQD_READER,
    "nsqlookupd": NSQLOOKUPD_READER,
    "nsqadmin": NSQADMIN_READER,
}
DAEMONS = ("nsqd", "nsqlookupd", "nsqadmin")


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Containerfile, each with what follows it."""
    text = (CONTAINER / "Containerfile").read_text("utf-8")
    lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines if line)]


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CONTAINER / "compose.yaml").read_text("utf-8"))
    return found


def documents(name: str) -> list[dict[str, Any]]:
    """Return the documents of a file in YAML."""
    return list(yaml.safe_load_all((CONTAINER / name).read_text("utf-8")))


def check(words: list[str]) -> None:
    """The command of a daemon has options that it takes."""
    program, *flags = words
    reader = READERS[program]
    resolved = reader.resolve(reader.read_command_line(flags))
    reader.table.check(resolved.options)
    assert resolved.warnings == []


@pytest.mark.parametrize("name", ["broker1", "broker2", "nsqlookupd", "nsqadmin"])
def test_a_service_with_a_copy_has_options_of_ours(name: str) -> None:
    [compose_ha] = documents("compose-ha.yaml")
    check(compose_ha["services"][name]["command"])


def test_the_brokers_with_a_copy_are_alike() -> None:
    """But for their names."""
    [compose_ha] = documents("compose-ha.yaml")
    first, second = (compose_ha["services"][name]["command"] for name in ("broker1", "broker2"))
    assert [word.replace("broker2", "broker1") for word in second] == first
    assert "dsn" in tomllib.loads(compose_ha["configs"]["replica"]["content"])


def test_the_pods_of_kubernetes_have_options_of_ours() -> None:
    found = {document["kind"]: document for document in documents("kubernetes-ha.yaml")}
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    check([word.replace("$(POD_NAME)", "nsqd-0") for word in container["args"]])
    assert set(tomllib.loads(found["ConfigMap"]["data"]["replica.toml"])) == {"dsn", "password_file", "data_set"}
    assert {volume["name"] for volume in container["volumeMounts"]} <= {
        *(volume["name"] for volume in pod["volumes"]),
        "data",
    }


def test_the_image_has_no_root_and_a_health_check_of_its_own() -> None:
    of = dict(instructions())
    assert of["USER"] == "10001:10001"
    assert of["STOPSIGNAL"] == "SIGTERM"
    command = json.loads(of["HEALTHCHECK"].partition("CMD ")[2])
    assert command[0] == "nsqtw" and tuple(command[1:]) in {verb.words for verb in VERBS}
    names = [name for name, _ in instructions()]
    assert names.index("USER") < names.index("CMD")


def test_the_command_of_the_image_is_a_broker() -> None:
    check(json.loads(dict(instructions())["CMD"]))


def test_the_image_is_built_from_what_setup_py_needs() -> None:
    allowed = [line[1:] for line in (CONTAINER / "Containerfile.dockerignore").read_text("utf-8").splitlines()]
    root = CONTAINER.parent.parent
    for pattern in (line for line in allowed if line and not line.startswith("*")):
        assert list(root.glob(pattern)), pattern


@pytest.mark.parametrize("name", READERS)
def test_a_service_has_options_of_ours(name: str) -> None:
    check(compose()["services"][name]["command"])


@pytest.mark.parametrize("name", DAEMONS)
def test_a_service_is_confined(name: str) -> None:
    service = compose()["services"][name]
    assert service["command"][0] == name
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert all(port.startswith("127.0.0.1:") for port in service["ports"]), "nobody else can reach it"


def test_a_stop_has_time_for_the_drain() -> None:
    service = compose()["services"]["nsqd"]
    options = NSQD_READER.resolve(NSQD_READER.read_command_line(service["command"][1:])).options
    assert float(service["stop_grace_period"].removesuffix("s")) > options.drain_timeout + options.stop_timeout


def test_every_file_and_volume_is_there() -> None:
    document = compose()
    for service in document["services"].values():
        if "build" in service:
            root = CONTAINER / service["build"]["context"]
            assert (root / service["build"]["dockerfile"]).is_file()
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            if source.startswith("."):
                assert (CONTAINER / source).is_file(), source
            else:
                assert source in document["volumes"], source


def test_prometheus_scrapes_the_services() -> None:
    document = yaml.safe_load((CONTAINER / "prometheus.yml").read_text("utf-8"))
    targets = [job["static_configs"][0]["targets"][0] for job in document["scrape_configs"]]
    services = compose()["services"]
    for target in targets:
        name, _, port = target.partition(":")
        assert f"127.0.0.1:{port}:{port}" in services[name]["ports"]
    assert {target.partition(":")[0] for target in targets} == set(DAEMONS)


@pytest.mark.parametrize("name", ["datasources", "dashboards"])
def test_grafana_is_provisioned(name: str) -> None:
    document = yaml.safe_load((CONTAINER / f"grafana/{name}.yml").read_text("utf-8"))
    assert document["apiVersion"] == 1
    mounted = [volume.split(":")[1] for volume in compose()["services"]["grafana"]["volumes"]]
    assert f"/etc/grafana/provisioning/{name}/nsq.yml" in mounted
    if name == "dashboards":
        path = document["providers"][0]["options"]["path"]
        assert any(target.startswith(path) for target in mounted)


def health(port: int) -> tuple[int, str, str]:
    """The health check of the image, which finds the address in the environment."""
    environment = {**os.environ, "NSQTW_HEALTH_ADDRESS": f"127.0.0.1:{port}"}
    command = [str(Path(sys.executable).with_name("nsqtw")), "health"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_the_health_check_against_each_daemon(tmp_path: Path) -> None:
    broker, lookupd = NsqdProcess(tmp_path / "nsqd"), LookupdProcess(tmp_path / "lookupd")
    admin = AdminProcess(tmp_path / "admin", f"--lookupd-http-address={HOST}:{lookupd.http_port}")
    try:
        broker.start()
        lookupd.start()
        admin.start()
        for daemon in (broker, lookupd, admin):
            assert health(daemon.http_port) == (0, "ready\n", "")
        broker.create("t", "c")
        broker.publish("t", [b"x"])
        broker.http("POST", "/v2/drain?timeout=0")
        code, said, _ = health(broker.http_port)
        assert (code, said) == (1, "not ready: draining: the broker drains: publish to another nsqd\n")
        lookupd.stop()
        code, said, complaint = health(lookupd.http_port)
        assert (code, said) == (4, "")
        assert complaint == f"nsqtw: 127.0.0.1:{lookupd.http_port}: connection refused\n"
    finally:
        broker.close()
        admin.close()
        lookupd.close()
