"""The package as users install it: a wheel and a source archive, each in a clean environment."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.daemon_process import Daemon
from testbed.stand_in.fixtures import start_stand_in
from wastenot.core.install import install_line, installer

ROOT = Path(__file__).parents[1]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def run(*command, folder, path=None):
    """Run a command as in a fresh shell; returns its exit code and all it printed."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["PIP_NO_COMPILE"] = "1"  # most modules of what is installed are never imported here
    if path is not None:
        environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, encoding="utf-8"
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """What a clone has that a package is made of, apart from this checkout, where nothing is to be built."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return folder


@pytest.mark.slow
def test_a_wheel_in_a_clean_environment_works_and_says_how_to_install_the_rest(clone, tmp_path):
    code, said = run(*PIP, "wheel", "--no-deps", "--wheel-dir", str(tmp_path / "wheels"), str(clone), folder=tmp_path)
    assert code == 0, said
    assert run(sys.executable, "-m", "venv", str(tmp_path / "venv"), folder=tmp_path)[0] == 0
    programs = tmp_path / "venv" / "bin"

    def shell(line):
        return run("sh", "-c", line, folder=tmp_path, path=programs)

    constraints = ROOT / "constraints.txt"
    code, said = shell(f"pip install --quiet --constraint {constraints} --find-links wheels wastenot")
    assert code == 0, said
    assert "\nNext: " in shell("wastenot doctor")[1]
    whole = (ROOT / "tests" / "kernels" / "page" / "synthetic-sweep.csv").read_text().splitlines(keepends=True)
    (tmp_path / "sweep.csv").write_text("".join(whole[: 1 + 6 * 82]))  # six kernels
    assert shell("wastenot study import sweep.csv --study s.db --origin synthetic --workload synthetic-sweep")[0] == 0
    code, said = shell("wastenot kernel plan --study s.db --max-slowdown 2%")
    assert code == 0 and said.startswith("synthetic-sweep on unknown") and "\N{NO-BREAK SPACE}%" in said, said
    code, said = shell("wastenot report s.db --page r.html")
    assert code == 2 and said.count("\n") == 1 and said.endswith(": pip install 'wastenot[report]'\n"), said
    line = (
        said[said.index("pip install") :].strip().replace("pip install", f"pip install --quiet --constraint {constraints}")
    )
    code, said = shell(line)  # the line as it was given, though no index has wastenot
    assert code == 0, said
    code, said = shell("wastenot report s.db --page r.html")
    assert code == 0 and (tmp_path / "r.html").stat().st_size > 100_000, said


@pytest.mark.slow
def test_roots_install_of_the_daemon_is_checked_by_hashes_and_works(clone, tmp_path):
    """As its page says, with nothing from elsewhere; the daemon then sets and restores clocks of the stand-in."""
    requirements = ROOT / "deploy" / "requirements"
    by_hash = ("install", "--quiet", "--require-hashes", "--requirement")
    for name in ("build", "daemon"):
        assert run(sys.executable, "-m", "venv", str(tmp_path / name), folder=tmp_path)[0] == 0
        code, said = run(str(tmp_path / name / "bin" / "pip"), *by_hash, str(requirements / f"{name}.txt"), folder=tmp_path)
        assert code == 0, said
    wheel = (str(tmp_path / "build" / "bin" / "pip"), "wheel", "--no-deps", "--no-build-isolation", "--no-index")
    code, said = run(*wheel, "--wheel-dir", str(tmp_path / "dist"), str(clone), folder=tmp_path)
    assert code == 0, said
    [made] = (tmp_path / "dist").iterdir()
    programs = tmp_path / "daemon" / "bin"
    code, said = run(str(programs / "pip"), "install", "--quiet", "--no-deps", "--no-index", str(made), folder=tmp_path)
    assert code == 0, said
    for program in ("wastenotd", "wastenot-pods"):
        assert run(str(programs / program), "--help", folder=tmp_path)[0] == 0
    (tmp_path / "policy.toml").write_text("[[allow]]\nusers = [1000]\n")
    code, said = run(str(programs / "wastenotd"), "--check", "--policy", str(tmp_path / "policy.toml"), folder=tmp_path)
    assert code == 0 and "1 rules, valid" in said, said
    with start_stand_in("h200", gpus=1) as stand_in:
        path = f"{ROOT / 'testbed' / 'stand_in' / 'shim'}{os.pathsep}{ROOT}"  # the driver alone, not this source tree
        daemon = Daemon(stand_in, tmp_path, (str(programs / "wastenotd"),), PYTHONPATH=path).start()
        client, gpu = daemon.connect(), stand_in.control.state().uuid
        assert "ok" in client.ask("acquire", gpu=gpu) and "ok" in client.ask("set", gpu=gpu, core_mhz=1200.0)
        assert not stand_in.control.state().untouched
        assert daemon.stop() == 0 and stand_in.control.state().untouched


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_each_python_and_machine_has_wheels_of_these_hashes(machine, tmp_path):
    for python in ("3.11", "3.12", "3.13"):
        for name in ("build", "daemon"):
            file = ROOT / "deploy" / "requirements" / f"{name}.txt"
            kind = ("--python-version", python, "--platform", f"manylinux2014_{machine}", "--implementation", "cp")
            code, said = run(
                *PIP, "download", "--require-hashes", "--no-deps", *kind, "--requirement", str(file), folder=tmp_path
            )
            assert code == 0, said


def test_the_line_that_installs_an_extra_is_for_this_environment(monkeypatch):
    monkeypatch.setattr("wastenot.core.install.distribution", lambda name: name)  # it is installed
    assert install_line("report", "nvidia").endswith(" 'wastenot[report,nvidia]'")
    monkeypatch.setattr("shutil.which", lambda name: str(Path(sys.executable).parent / name))
    assert installer() == "pip install"
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/pip")  # that of another environment
    assert installer() == f"{sys.executable} -m pip install"
    monkeypatch.setattr("wastenot.core.install.find_spec", lambda name: None)
    assert installer() == f"uv pip install --python {sys.executable}"


def test_a_source_tree_that_is_not_installed_is_installed_from_its_folder(monkeypatch):
    from importlib.metadata import PackageNotFoundError

    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("wastenot.core.install.distribution", missing)
    assert install_line("report").endswith(f" '{ROOT}[report]'")
