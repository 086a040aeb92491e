"""The files of deploy/ for wastenotd, each checked by what will read it, or by a schema of that."""

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.read_policies import read_policy
from wastenot.devices.clockd import server
from wastenot.devices.common.daemon_protocol import SOCKET
from wastenot.devices.common.journal import MACHINE

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "wastenotd.service"
PROGRAM = "/opt/wastenot/bin/wastenotd"


def installed(program):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    return program


def run(*command, **more):
    return subprocess.run(command, check=False, capture_output=True, text=True, **more)


def test_the_policy_that_comes_along_is_right(tmp_path):
    text = (DEPLOY / "wastenotd.toml").read_text()
    path = tmp_path / "wastenotd.toml"
    for given in (text, re.sub(r"^# (?=\w+ = |\[)", "", text, flags=re.MULTILINE)):  # as it is, and with all that it shows
        path.write_text(given.replace('"wastenot"', "4242"))
        policy = read_policy(path)
        assert policy.group == 4242 and policy.rules[0].groups == {4242}
    assert policy.rules[0].bounds.core_mhz == (900.0, 1980.0) and len(policy.restores) == 1
    shown = {line.split()[1]: line for line in text.splitlines() if re.match(r"# \w+ = ", line)}
    defaults = {"heartbeat_s": 30, "requests_per_s": 200, "connections_per_user": 32}
    assert {name: int(shown[name].split()[3]) for name in defaults} == defaults
    path.write_text("")
    assert {name: getattr(read_policy(path), name) for name in defaults} == defaults


# ---- systemd ----------------------------------------------------------------------------------------------------


@pytest.fixture
def unit(tmp_path):
    """The unit, with a program that exists here."""
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace(PROGRAM, sys.executable))
    return path


@pytest.mark.system
def test_systemd_understands_the_unit(unit):
    done = run(installed("systemd-analyze"), "verify", str(unit))
    assert done.returncode == 0 and str(unit.name) not in done.stderr, done.stderr
    unit.write_text(unit.read_text().replace("Restart=always", "Restart=sometimes"))
    assert "sometimes" in run("systemd-analyze", "verify", str(unit)).stderr  # it does look


def test_systemd_never_gives_the_daemon_up_and_bounds_what_it_takes():
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str
    unit.read([UNIT, UNIT.with_name("wastenotd-254.conf")])  # as systemd reads a unit and then its drop-ins
    assert unit["Unit"]["StartLimitIntervalSec"] == "0" and unit["Service"]["Restart"] == "always"
    wanted = {
        "RestartSec": "2",
        "RestartSteps": "6",
        "RestartMaxDelaySec": "1min",
        "Type": "notify-reload",
        "ExecReload": "",
    }
    assert {name: unit["Service"][name] for name in wanted} == wanted
    assert {"MemoryMax", "TasksMax"} <= {*unit["Service"]} and int(unit["Service"]["LimitNOFILE"]) > server._CONNECTIONS + 64


@pytest.mark.system
def test_the_unit_is_hardened(unit):
    done = run(installed("systemd-analyze"), "security", "--offline=true", "--no-pager", str(unit))
    assert float(re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)[1]) <= 1.8, done.stdout


def test_the_unit_keeps_leases_while_the_daemon_is_away_and_starts_it_again():
    lines = UNIT.read_text().splitlines()
    for line in ("RuntimeDirectory=wastenotd", "RuntimeDirectoryPreserve=yes", "Restart=always", "Type=notify"):
        assert line in lines
    assert "Environment=WASTENOT_STATE=/run/wastenotd" in lines
    assert f"ExecStart={PROGRAM} --audit /var/log/wastenot/audit.jsonl" in lines
    assert "LogsDirectory=wastenot" in lines and "LogsDirectoryMode=0700" in lines
    assert f"ExecStopPost=-{PROGRAM} --recover" in lines and not any("--check" in line for line in lines)


def test_what_containers_mount_holds_the_socket_and_nothing_else():
    """Root of a container that can write where journals or rules are would set clocks past the policy."""
    assert SOCKET.parent == Path("/run/wastenot") and MACHINE not in (SOCKET.parent, *SOCKET.parents)
    assert SOCKET.parent not in (MACHINE, *MACHINE.parents)
    unit, folders = UNIT.read_text().splitlines(), (DEPLOY / "systemd" / "tmpfiles.conf").read_text()
    assert "RuntimeDirectoryMode=0700" in unit and f"ReadWritePaths={SOCKET.parent}" in unit
    assert f"d {MACHINE} 0700 root root" in folders and f"D {MACHINE}/policy.d 0700 root root" in folders
    daemon = (ROOT / "docs" / "daemon.md").read_text()
    assert "-v /run/wastenot:/run/wastenot:ro --group-add" in daemon
    for script in ("prolog.sh", "epilog.sh"):
        assert f"${{WASTENOT_STATE:-{MACHINE}}}/policy.d" in (DEPLOY / "slurm" / script).read_text()


@pytest.mark.system
def test_systemd_understands_group_and_folders(tmp_path):
    group = run(installed("systemd-sysusers"), "--dry-run", f"--root={tmp_path}", str(DEPLOY / "systemd" / "sysusers.conf"))
    assert group.returncode == 0 and "'wastenot'" in group.stdout + group.stderr
    folders = run(installed("systemd-tmpfiles"), "--create", f"--root={tmp_path}", str(DEPLOY / "systemd" / "tmpfiles.conf"))
    if os.geteuid() == 0:
        rule = tmp_path / "run" / "wastenotd" / "policy.d" / "job-17.toml"
        assert folders.returncode == 0 and rule.parent.is_dir()
        rule.touch()  # is there as long as the system runs, also where /run is kept when it starts again
        for what, there in (("--create", True), ("--clean", True), ("--remove", False)):
            run("systemd-tmpfiles", what, f"--root={tmp_path}", str(DEPLOY / "systemd" / "tmpfiles.conf"))
            assert rule.exists() is there


# ---- containers ---------------------------------------------------------------------------------------------------


def test_the_recipe_of_the_image_copies_what_exists_and_starts_the_daemon():
    text = re.sub(r"\\\n", " ", (DEPLOY / "container" / "Containerfile").read_text())
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    known = {
        "ARG",
        "FROM",
        "COPY",
        "RUN",
        "ENV",
        "USER",
        "WORKDIR",
        "VOLUME",
        "STOPSIGNAL",
        "HEALTHCHECK",
        "ENTRYPOINT",
        "CMD",
    }
    assert {word for word, _ in lines} <= known
    for word, rest in lines:
        if word == "COPY" and "--from" not in rest:
            assert all((ROOT / name).exists() for name in rest.split()[:-1]), rest
        if word in ("VOLUME", "ENTRYPOINT", "CMD"):
            assert isinstance(json.loads(rest), list)
    said = dict(lines)
    assert json.loads(said["ENTRYPOINT"]) == ["wastenotd"] and said["STOPSIGNAL"] == "SIGTERM"
    assert all("@${PYTHON_DIGEST}" in rest for word, rest in lines if word == "FROM")
    users = lines[[rest.endswith(" AS users") for _, rest in lines].index(True) :]
    assert ["USER", "1000:1000"] in users and next(rest for word, rest in users if word == "ENTRYPOINT") == '["wastenot"]'
    for line in (rest for word, rest in lines if word == "RUN"):
        for installed in re.findall(r"pip install ([^&]*)", line):
            assert "--require-hashes" in installed or {"--no-deps", "--no-index"} <= {*installed.split()}


# ---- Slurm --------------------------------------------------------------------------------------------------------


@pytest.fixture
def slurm(tmp_path):
    """Runs prolog and epilog of a job, with a systemctl that notes what it is told."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    systemctl = binaries / "systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/told\nexit 1\n')
    systemctl.chmod(0o755)

    def call(name, **variables):
        environment = {"PATH": f"{binaries}:{os.environ['PATH']}", "WASTENOT_STATE": str(tmp_path / "state"), **variables}
        done = run("sh", str(DEPLOY / "slurm" / name), env=environment)
        assert done.returncode == 0 and done.stdout == "", "a job must not fail for it"  # even where systemctl does
        told = tmp_path / "told"
        return done.stderr, told.read_text() if told.exists() else ""

    return call


@pytest.mark.parametrize(
    ("gpus", "meant"), [("0", {0}), ("0,2", {0, 2}), ("0-3", {0, 1, 2, 3}), ("1,4-5,7", {1, 4, 5, 7}), ("10", {10})]
)
def test_slurm_allows_a_job_its_gpus_for_as_long_as_it_runs(slurm, tmp_path, gpus, meant):
    job = {"SLURM_JOB_ID": "17", "SLURM_JOB_UID": "1000"}
    assert slurm("prolog.sh", SLURM_JOB_GPUS=gpus, **job) == ("", "reload wastenotd\n")
    policy = tmp_path / "wastenotd.toml"
    policy.write_text("")
    jobs = tmp_path / "state" / "policy.d"
    [rule] = read_policy(policy, jobs).rules
    assert rule.users == {1000} and rule.gpus == meant and rule.groups == frozenset()
    assert [path.name for path in jobs.iterdir()] == ["job-17.toml"]
    assert slurm("epilog.sh", **job)[1] == "reload wastenotd\n" * 2
    assert read_policy(policy, jobs).rules == ()


@pytest.mark.parametrize(
    "job", [{}, {"SLURM_JOB_ID": "17"}, {"SLURM_JOB_ID": "17", "SLURM_JOB_UID": "1000"},
            {"SLURM_JOB_ID": "17", "SLURM_JOB_UID": "1000", "SLURM_JOB_GPUS": "GPU-x;rm"}]
)  # fmt: skip
def test_a_job_without_gpus_is_allowed_nothing(slurm, tmp_path, job):
    assert slurm("prolog.sh", **job) == ("", "") and slurm("epilog.sh", **job) == ("", "")
    assert not list((tmp_path / "state").rglob("*.toml"))


@pytest.mark.system
def test_shellcheck_finds_nothing():
    done = run(installed("shellcheck"), *map(str, sorted((DEPLOY / "slurm").glob("*.sh"))))
    assert done.returncode == 0, done.stdout


def test_slurm_gives_no_path_and_jobs_may_have_bounds(tmp_path):
    bounds = tmp_path / "job-bounds.toml"
    bounds.write_text("core_mhz = [900, 1980]\nlongest_lease_s = 3600\n")
    environment = {"WASTENOT_STATE": str(tmp_path / "state"), "WASTENOT_JOB_BOUNDS": str(bounds)}
    environment |= {"SLURM_JOB_ID": "17", "SLURM_JOB_UID": "1000", "SLURM_JOB_GPUS": "0"}
    shell = shutil.which("sh")
    assert run(shell, str(DEPLOY / "slurm" / "prolog.sh"), env=environment).returncode == 0
    policy = tmp_path / "wastenotd.toml"
    policy.write_text("")
    [rule] = read_policy(policy, tmp_path / "state" / "policy.d").rules
    assert rule.bounds.core_mhz == (900.0, 1980.0) and rule.bounds.longest_lease_s == 3600.0
    assert run(shell, str(DEPLOY / "slurm" / "epilog.sh"), env=environment).returncode == 0
    assert not list((tmp_path / "state").rglob("*.toml"))
