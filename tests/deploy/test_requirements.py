"""The files by which root installs wastenotd: exact versions with hashes, of what the daemon imports and nothing else."""

import re
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import wastenot as wn
from testbed.daemon_process import Daemon
from testbed.small_sweeps import make_sweep
from testbed.stand_in.fixtures import start_stand_in

ROOT = Path(__file__).parents[2]
OF_PYDANTIC = {"pydantic-core", "annotated-types", "typing-extensions", "typing-inspection"}
LOCKED = re.compile(r"(\S+)==(\S+) \\\n(?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+")


def locked(name):
    """Versions by name; the file says nothing else, such as another index or a package without a hash."""
    text = (ROOT / "deploy" / "requirements" / f"{name}.txt").read_text()
    assert LOCKED.sub("", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).split() == ["--only-binary", ":all:"]
    return {canonicalize_name(found[1]): Version(found[2]) for found in LOCKED.finditer(text)}


def test_it_holds_what_the_daemon_imports_and_what_that_declares_and_nothing_else(tmp_path):
    """A daemon that sees no other package sets and restores clocks."""
    modules = {
        module: canonicalize_name(owners[0])
        for module, owners in packages_distributions().items()
        if canonicalize_name(owners[0]) in locked("daemon")
    }
    site = Path(sysconfig.get_path("purelib"))
    for module in modules:
        found = next(path for path in (site / module, site / f"{module}.py") if path.exists())
        (tmp_path / found.name).symlink_to(found)
    with start_stand_in("h200", gpus=1, memory_lock=True) as stand_in:
        path = f"{stand_in.environment()['PYTHONPATH']}:{tmp_path}"
        command = (sys.executable, "-S", "-X", "importtime", "-m", "wastenot.devices.clockd.main")
        daemon = Daemon(stand_in, tmp_path, command, PYTHONPATH=path).start()
        client, gpu = daemon.connect(), stand_in.control.state().uuid
        for ask, fields in (("acquire", {"claim": True}), ("set", {"core_mhz": 1200.0, "power_limit_w": 500.0})):
            assert "ok" in client.ask(ask, gpu=gpu, **fields)
        assert stand_in.control.state().locked_core_mhz[1] == 1200
        assert "ok" in client.ask("release", gpu=gpu) and stand_in.control.state().untouched and daemon.stop() == 0
    imported = {name for module, name in modules.items() if re.search(rf"\| +{module}$", daemon.said(), re.MULTILINE)}
    declared = [Requirement(each) for name in imported for each in requires(name) or ()]
    assert imported == {"amdsmi", "lazy-loader", "nvidia-ml-py"}
    assert imported | {each.name for each in declared if each.marker is None} == {*locked("daemon")}


def test_what_wastenot_pods_imports_is_there_and_nothing_else(tmp_path):
    """Reading a plan is what needs most."""
    names = locked("pods")
    for module, owners in packages_distributions().items():
        found = Path(sysconfig.get_path("purelib")) / module
        found = found if found.exists() else found.with_suffix(".py")
        if canonicalize_name(owners[0]) in names and found.exists():
            (tmp_path / found.name).symlink_to(found)
    sweep = make_sweep([("a", None, None, 1.0, 100.0), ("a", 900.0, None, 1.0, 70.0)])
    wn.plan(sweep, max_slowdown=0.0, granularity="iteration", as_measured=True).write(tmp_path / "one.json")
    program = (
        "import wastenot.devices.pods.main; from pathlib import Path; from wastenot.devices.pods.api import Pod; "
        "from wastenot.devices.pods.wish import wish_of; "
        f"print(wish_of(Pod('a/b', {{'wastenot.dev/plan': 'one'}}, 1), Path({str(tmp_path)!r})).each)"
    )
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{tmp_path}"}
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "core 900, memory auto\n", done.stderr
    assert names.keys() == locked("daemon").keys() | {"numpy", "pydantic"} | OF_PYDANTIC


def test_versions_are_those_that_were_tested_together_and_that_the_package_admits():
    tested = re.findall(r"^(\S+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert (locked("daemon") | locked("pods") | locked("users")).items() <= {
        canonicalize_name(name): Version(version) for name, version in tested
    }.items()
    assert locked("build").keys() == {"setuptools"}
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, have = document["project"], locked("daemon") | locked("pods") | locked("build")
    extras = project["optional-dependencies"]
    asked = project["dependencies"] + extras["nvidia"] + extras["amd"] + document["build-system"]["requires"]
    bounds = {canonicalize_name(each.name): each.specifier for each in map(Requirement, asked)}
    assert have.keys() - bounds.keys() == {"packaging"} | OF_PYDANTIC  # packaging is what lazy-loader asks for
    assert all(version in bounds[name] for name, version in have.items() if name in bounds)
    of_users = map(Requirement, project["dependencies"] + extras["report"] + extras["serve"] + extras["nvidia"])
    assert all(locked("users")[canonicalize_name(each.name)] in each.specifier for each in of_users)
