"""The policy file: what it says, and mistakes in it, which are named with their place."""

import os

import pytest

from testbed.read_policies import read_policy
from wastenot.core.errors import BadInputError
from wastenot.devices.clockd import policy as policy_module
from wastenot.devices.clockd.main import main
from wastenot.devices.clockd.policy import Bounds, Gpu, Peer, policy_of, read_files
from wastenot.devices.common.journal import Restore

GOOD = """
group = "root"
heartbeat_s = 5
requests_per_s = 20
connections_per_user = 3

[[allow]]
users = ["root", 1000]
gpus = [0, "GPU-x"]
core_mhz = [900, 1980]
memory_mhz = false
power_limit_w = [400.5, 700]
longest_lease_s = 3600

[[allow]]
users = [1000]
groups = [50]

[[restore]]
gpus = [1]
core_mhz = [0, 1500]
"""
ZERO, ONE = Gpu(0, "GPU-a"), Gpu(1, "GPU-b")


@pytest.fixture
def write(tmp_path):
    def write(text, name="wastenotd.toml"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)
        return path

    return write


def peer(user, *groups):
    return Peer(user, frozenset(groups), 1)


def test_the_first_rule_that_fits_a_user_and_a_gpu_holds(write):
    policy = read_policy(write(GOOD))
    first = Bounds((900.0, 1980.0), None, (400.5, 700.0), 3600.0)
    assert policy.bounds(peer(1000), ZERO) == policy.bounds(peer(0), Gpu(7, "GPU-x")) == first
    assert policy.bounds(peer(1000), ONE) == policy.bounds(peer(5, 50), ZERO) == Bounds()
    assert policy.bounds(peer(5, 51), ZERO) is policy.bounds(peer(0), ONE) is None
    assert (policy.group, policy.heartbeat_s, policy.requests_per_s, policy.connections_per_user) == (0, 5.0, 20.0, 3)
    assert policy.restore(ONE) == Restore((0.0, 1500.0)) and policy.restore(ZERO) == Restore()


def test_nobody_is_allowed_anything_that_is_not_written(write):
    policy = read_policy(write(""))
    assert policy.bounds(peer(0, 0), ZERO) is None


def test_rules_of_jobs_come_first(write, tmp_path):
    path = write(GOOD)
    write("[[allow]]\nusers = [1000]\ngpus = [0]\ncore_mhz = false", "jobs/17.toml")
    write("[[allow]]\nusers = [1002]\ngpus = [1]", "jobs/18.toml")
    policy = read_policy(path, tmp_path / "jobs")
    assert policy.bounds(peer(1000), ZERO) == Bounds(core_mhz=None)
    assert policy.bounds(peer(1002), ONE) == Bounds() and policy.bounds(peer(1002), ZERO) is None
    assert read_policy(path, tmp_path / "none").rules == read_policy(path).rules


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("heartbeat_s = 1\nx = ?", "line 2"),
        ("nonsense = 1", "nonsense: there is no such field"),
        ("heartbeat_s = 0", "heartbeat_s: 0 is not a positive number"),
        ("heartbeat_s = true", "heartbeat_s: True"),
        ("heartbeat_s = nan", "heartbeat_s: nan"),
        ("heartbeat_s = inf", "heartbeat_s: inf"),
        ("connections_per_user = 2.5", "connections_per_user: 2.5"),
        ('group = "no-such-group"', "group: this machine has no group 'no-such-group'"),
        ("group = -1", "group: -1"),
        ("allow = 3", "allow: 3 is not a list"),
        ("allow = [3]", "allow: write [[allow]]"),
        ("[[allow]]", "allow[1].users: list who is allowed"),
        ("[[allow]]\nusers = []", "allow[1].users"),
        ("[[allow]]\nusers = [0]\n[[allow]]\nusers = ['nobody-here']", "allow[2].users: this machine has no user"),
        ("[[allow]]\nusers = 0", "allow[1].users: 0 is not a list"),
        ("[[allow]]\nusers = [true]", "allow[1].users: True"),
        ("[[allow]]\nusers = [0]\ngpus = ['nvidia:0']", "allow[1].gpus: 'nvidia:0' is neither"),
        ("[[allow]]\nusers = [0]\ncore_mhz = 900", "allow[1].core_mhz: 900 is not a list"),
        ("[[allow]]\nusers = [0]\ncore_mhz = true", "allow[1].core_mhz"),
        ("[[allow]]\nusers = [0]\ncore_mhz = [900]", "allow[1].core_mhz: [900]: write the lowest"),
        ("[[allow]]\nusers = [0]\ncore_mhz = [1500, 900]", "allow[1].core_mhz"),
        ("[[allow]]\nusers = [0]\npower_limit_w = [1, nan]", "allow[1].power_limit_w"),
        ("[[allow]]\nusers = [0]\ncore_hz = [1, 2]", "allow[1].core_hz: there is no such field"),
        ("[[restore]]\ncore_mhz = false", "restore[1].core_mhz"),
        ("\x00", "line 1"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_nothing_starts(write, capsys, text, said):
    path = write(text)
    with pytest.raises(BadInputError) as raised:
        read_policy(path)
    assert str(raised.value).startswith(str(path)) and said in str(raised.value) and "\n" not in str(raised.value)
    assert main(["--policy", str(path)]) == 2
    assert capsys.readouterr().err == f"error: {raised.value}\n"


def test_a_mistake_in_the_rules_of_a_job_names_that_file(write, tmp_path):
    path, job = write(GOOD), write("[[allow]]\nuser = [1]", "jobs/17.toml")
    with pytest.raises(BadInputError, match=f"{job}: "):
        read_policy(path, tmp_path / "jobs")
    write("heartbeat_s = 100000", "jobs/17.toml")
    with pytest.raises(BadInputError, match="heartbeat_s: there is no such field"):
        read_policy(path, tmp_path / "jobs")


def test_a_file_that_others_may_write_is_no_policy(write, tmp_path):
    path = write(GOOD)
    for mode in (0o664, 0o646):
        path.chmod(mode)
        with pytest.raises(BadInputError, match="users other than root can write to it"):
            read_policy(path)
    with pytest.raises(BadInputError, match="cannot be read"):
        read_policy(tmp_path / "none")


def test_rules_of_jobs_that_others_can_have_put_there_are_none(write, tmp_path):
    path, job = write(GOOD), write("[[allow]]\nusers = [1002]\ngpus = [1]", "jobs/18.toml")
    (tmp_path / "jobs" / "19.toml").symlink_to(write("[[allow]]\nusers = [1003]", "elsewhere.toml"))
    with pytest.raises(BadInputError, match=r"19\.toml: cannot be read"):
        read_policy(path, tmp_path / "jobs")
    (tmp_path / "jobs" / "19.toml").unlink()
    assert len(read_policy(path, tmp_path / "jobs").rules) == 3
    job.parent.chmod(0o777)
    with pytest.raises(BadInputError, match="jobs: users other than root can write to it"):
        read_policy(path, tmp_path / "jobs")


def test_what_a_file_said_holds_until_it_can_be_understood_again_and_no_longer_than_it_is_there(write, tmp_path):
    path, jobs = write(GOOD), tmp_path / "jobs"
    first, _ = write("[[allow]]\nusers = [2001]", "jobs/17.toml"), write("[[allow]]\nusers = [2002]", "jobs/18.toml")
    before, mistakes = read_files(path, jobs)
    assert mistakes == [] and policy_of(path, before) == read_policy(path, jobs)
    write("?", "jobs/17.toml"), write("?", "wastenotd.toml"), write("?", "jobs/19.toml"), (jobs / "18.toml").unlink()
    after, mistakes = read_files(path, jobs, before)
    assert len(mistakes) == 3 and after == {path: before[path], first: before[first]}
    policy = policy_of(path, after)
    assert policy.bounds(peer(2001), ZERO) == Bounds() and policy.bounds(peer(2002), ZERO) is None
    assert policy.heartbeat_s == 5.0 and policy.bounds(peer(1000), ZERO) is not None
    jobs.chmod(0o777)
    assert read_files(path, jobs, before)[0] == before


def test_the_rules_of_a_job_that_ends_while_they_are_read_are_none(write, monkeypatch, tmp_path):
    path, job = write(GOOD), write("[[allow]]\nusers = [2001]", "jobs/17.toml")
    before, _ = read_files(path, tmp_path / "jobs")
    monkeypatch.setattr(policy_module, "_files", lambda jobs: [job])  # listed, and then removed
    job.unlink()
    assert read_files(path, tmp_path / "jobs", before) == ({path: before[path]}, [])
    path.unlink()
    after, mistakes = read_files(path, tmp_path / "jobs", before)
    assert after == {path: before[path]} and "cannot be read" in str(mistakes[0])


def test_nothing_is_read_from_a_folder_of_jobs_that_others_can_write(write, tmp_path):
    path, job = write(GOOD), write("[[allow]]\nusers = [2001]", "jobs/17.toml")
    before, _ = read_files(path, tmp_path / "jobs")
    job.write_text("[[allow]]\nusers = [2002]")
    job.parent.chmod(0o777)
    after, mistakes = read_files(path, tmp_path / "jobs", before)
    assert after == before and len(mistakes) == 1
    job.unlink()
    assert read_files(path, tmp_path / "jobs", before)[0] == before


def test_the_first_job_by_name_holds(write, tmp_path):
    path = write(GOOD)
    write("[[allow]]\nusers = [2001]\ncore_mhz = false", "jobs/17.toml"), write("[[allow]]\nusers = [2001]", "jobs/18.toml")
    assert read_policy(path, tmp_path / "jobs").bounds(peer(2001), ZERO) == Bounds(core_mhz=None)


def test_a_folder_in_which_others_can_replace_the_policy_is_refused(write, capsys, tmp_path):
    path = write(GOOD, "etc/wastenotd.toml")
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    path.parent.chmod(0o777)
    for given in (path, link):
        assert main(["--policy", str(given), "--check"]) == 2
        assert f"{path.parent}: users other than root can write to it" in capsys.readouterr().err
    path.parent.chmod(0o755)
    assert main(["--policy", str(link), "--check"]) == 0


def test_check_says_that_it_is_right(write, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("WASTENOT_STATE", str(tmp_path))
    path = write(GOOD)
    assert main(["--policy", str(path), "--check"]) == 0
    assert capsys.readouterr().out == f"{path}: 2 rules, valid\n"


def test_it_does_not_start_where_nothing_may_be_changed(write, capsys, monkeypatch):
    monkeypatch.setenv("WASTENOT_READ_ONLY", "1")
    assert main(["--policy", str(write(GOOD))]) == 2
    assert "WASTENOT_READ_ONLY=1 is set" in capsys.readouterr().err and os.environ["WASTENOT_READ_ONLY"] == "1"
