"""Completion in the shells themselves, those that are installed here."""

import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import time

import pytest

from wastenot.terminal.completing import devices, kernels, workloads

ASKED = [
    ("wastenot kernel swe", {"sweep"}),
    ("wastenot kernel pl", {"plan"}),
    ("wastenot kernel plan --max-s", {"--max-slowdown"}),
    ("wastenot kernel plan --objective e", {"edp", "energy"}),
    ("wastenot kernel sweep gpt3-2", {"gpt3-2.7b"}),
    ("wastenot kernel sweep gpt3-xl --clocks n", {"natural"}),
    ("wastenot kernel sweep gpt3-xl --dtype b", {"bf16"}),
    ("wastenot kernel sweep gpt3-xl --phase d", {"decode"}),
    (
        "wastenot kernel run gpt3-xl --device s",
        {f"sim:{name}" for name in ("a100", "b200", "h100", "h200", "mi300x", "rtx-3080-ti", "rtx-a4000", "v100")},
    ),
    ("wastenot kernel run gpt3-xl --device sim:r", {"sim:rtx-3080-ti", "sim:rtx-a4000"}),
    ("wastenot profile run gpt3-x", {"gpt3-xl:"}),
]

needs = {
    shell: pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")
    for shell in ("bash", "zsh", "fish")
}


@pytest.fixture(scope="module")
def around(tmp_path_factory):
    """An environment in which ``wastenot`` is on the path, and a folder with a few files."""
    folder = tmp_path_factory.mktemp("completion")
    program = folder / "bin" / "wastenot"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m wastenot "$@"\n')
    program.chmod(0o755)
    (folder / "here").mkdir()
    for name in ("mine.json", "my.db", "my-gpu.toml"):
        (folder / "here" / name).touch()
    path = os.pathsep.join(path for path in sys.path if path)
    environment = os.environ | {
        "PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": path, "HOME": str(folder), "TERM": "dumb",
    }  # fmt: skip
    return folder / "here", environment


def run_in(around, *command):
    folder, environment = around
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.stderr == "", done
    return done.stdout


# One of each kind; fish and zsh are asked for all.
ASKED_OF_BASH = {**dict(ASKED[1:5] + ASKED[-2:]), "wastenot kernel run x --device sim:": ASKED[8][1] | {"sim:my-gpu.toml"},
                 "wastenot kernel run gpt3-xl --dtype=b": {"bf16"}}  # fmt: skip


@pytest.fixture(scope="module")
def bash_answers(around):
    """What one bash offers for each question."""
    script = ". <(wastenot --show-completion bash)\n" + "".join(
        f"COMP_WORDS=({shlex.join(bash_words(asked))}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()\n"
        "_wastenot_completion wastenot; printf '%s\\n' \"${COMPREPLY[@]}\" ----\n"
        for asked in ASKED_OF_BASH
    )
    *answers, rest = run_in(around, "bash", "-c", script, "bash").split("----\n")
    assert rest == ""
    return dict(zip(ASKED_OF_BASH, answers, strict=True))


def bash_words(asked):
    """Words as bash breaks them: also at colons and equals signs."""
    words = [part for word in asked.split(" ") for part in word.replace(":", " : ").replace("=", " = ").split(" ")]
    words = [word for index, word in enumerate(words) if word or index == len(words) - 1]
    if words[-1] == "" and words[-2] == ":":
        words.pop()
    return words


@needs["bash"]
@pytest.mark.parametrize("asked", ASKED_OF_BASH)
def test_bash(bash_answers, asked):
    before = asked.split(" ")[-1].rpartition(":")[0]  # bash replaces what stands behind the last colon
    before = before + ":" if before else ""
    assert {before + line for line in bash_answers[asked].splitlines() if line} == ASKED_OF_BASH[asked]


@needs["fish"]
@pytest.mark.system
def test_fish(around):
    script = "wastenot --show-completion fish | source; for asked in $argv; complete -C $asked; echo ----; end"
    *answers, rest = run_in(around, "fish", "--no-config", "-c", script, *(asked for asked, _ in ASKED)).split("----\n")
    assert rest == ""
    found = [{line.partition("\t")[0] for line in answer.splitlines()} for answer in answers]
    assert found == [offered for _, offered in ASKED]


@needs["zsh"]
@pytest.mark.system
def test_zsh(around):
    folder, environment = around
    one_answer = [(asked, *offered) for asked, offered in ASKED if len(offered) == 1]
    assert len(one_answer) > 5
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execvpe("zsh", ["zsh", "-f", "-i"], environment | {"PS1": "> "})
    try:
        setup = "autoload -Uz compinit; compinit -u -D; eval \"$(wastenot --show-completion zsh)\"; echo re''ady\n"
        os.write(terminal, setup.encode())
        read_until(terminal, "ready")
        for asked, answer in one_answer:
            os.write(terminal, (asked + "\t").encode())
            read_until(terminal, asked.rpartition(" ")[0] + " " + answer)
            os.write(terminal, b"\x15")
        os.write(terminal, b"wastenot kernel run gpt3-xl --device sim:h2\t")
        read_until(terminal, "--device sim:h200")
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)
        os.close(terminal)


def read_until(terminal, expected, seconds=60.0):
    """Read what the shell shows until it contains a text; what is typed comes back as it was typed."""
    seen, deadline = "", time.monotonic() + seconds
    while expected not in seen:
        ready, _, _ = select.select([terminal], [], [], max(deadline - time.monotonic(), 0.0))
        assert ready, f"{expected!r} did not come; seen: {seen!r}"
        seen += os.read(terminal, 4096).decode(errors="replace").replace("\b", "")


def test_files_and_recordings_are_offered_where_they_may_stand(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mine.json", "my.db", "notes.txt"):
        (tmp_path / name).touch()
    assert workloads("m") == ["mine.json", "my.db"]
    assert devices("recorded:m") == ["recorded:my.db"]
    assert devices("n") == ["nvidia:0"]
    assert kernels("gemm:8") == ["gemm:8192"]
    assert workloads("no/such/folder/m") == []


@pytest.mark.parametrize("flag", ["--show-completion", "--install-completion"])
def test_a_shell_that_is_not_known_is_refused(wastenot, flag):
    assert "bash, zsh and fish" in wastenot.refuse(flag, "tcsh")


@pytest.mark.parametrize(("shell", "file"), [("bash", ".bashrc"), ("zsh", ".zshrc"), ("fish", ".config/fish/completions")])
def test_completion_is_installed_for_the_shell_that_is_named(wastenot, shell, file):
    ran = wastenot.process("--install-completion", shell, HOME=str(wastenot.folder))
    assert ran.code == 0 and shell in ran.out and (wastenot.folder / file).exists()


@pytest.mark.parametrize(
    "asked",
    [
        {
            "_WASTENOT_COMPLETE": "complete_bash",
            "COMP_WORDS": "wastenot\nkernel\nrun\nx\n--device\nsim\n:\nh",
            "COMP_CWORD": "7",
        },
        {"_WASTENOT_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "wastenot kernel swe"},
    ],
)
def test_completing_imports_nothing_heavy(around, asked):
    folder, environment = around
    command = [sys.executable, "-X", "importtime", "-m", "wastenot"]
    done = subprocess.run(command, cwd=folder, env=environment | asked, check=True, capture_output=True, text=True)
    assert "h200" in done.stdout or "sweep" in done.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "typer" in imported
    assert not {"numpy", "scipy", "sqlalchemy", "pydantic", "rich"} & imported
