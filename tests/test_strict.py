"""``WASTENOT_TEST_STRICT=1`` turns skips of tests, fixtures and modules into failures, also in the workers of xdist."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import pytest

def test_wants_postgresql():
    pytest.skip("start a server")

@pytest.mark.skipif(True, reason="no chromium")
def test_wants_chromium():
    pass

@pytest.fixture
def sweeps():
    pytest.skip("no polars")

def test_wants_sweeps(sweeps):
    pass

def test_wants_a_gpu():
    pytest.skip("no GPU to run on")

@pytest.mark.xfail
def test_is_known_to_fail():
    raise ValueError

def test_passes():
    pass
"""


@pytest.fixture
def tests_of_a_checkout(pytester):
    """Tests with the conftest of these, in a checkout without measured sweeps beside it."""
    tests = pytester.mkpydir("checkout").parent / "checkout" / "tests"
    tests.mkdir()
    (tests / "conftest.py").write_text(Path(__file__).with_name("conftest.py").read_text())
    return tests


def run(pytester, tests, workers="0"):
    """In this process, apart from the workers, of which one shows what any number would."""
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-n", workers, tests)


@pytest.mark.parametrize(
    ("strict", "workers", "outcomes"),
    [
        ("1", "0", {"passed": 1, "failed": 1, "errors": 2, "skipped": 1, "xfailed": 1}),
        ("1", "1", {"passed": 1, "failed": 1, "errors": 2, "skipped": 1, "xfailed": 1}),
        ("0", "0", {"passed": 1, "skipped": 4, "xfailed": 1}),
    ],
)
def test_a_skip_fails(tests_of_a_checkout, pytester, monkeypatch, strict, workers, outcomes):
    monkeypatch.setenv("WASTENOT_TEST_STRICT", strict)
    (tests_of_a_checkout / "test_some.py").write_text(TESTS)
    ran = run(pytester, tests_of_a_checkout, workers)
    ran.assert_outcomes(**outcomes)
    assert ("install what is missing" in ran.stdout.str()) == (strict == "1")


@pytest.mark.parametrize(
    ("module", "workers", "fails"), [("no_such_module", "0", True), ("no_such_module", "1", True), ("triton", "0", False)]
)
def test_a_skipped_module_fails(tests_of_a_checkout, pytester, monkeypatch, module, workers, fails):
    monkeypatch.setenv("WASTENOT_TEST_STRICT", "1")
    (tests_of_a_checkout / "test_module.py").write_text(
        f"import pytest\npytest.importorskip({module!r})\ndef test_it(): pass\n"
    )
    (tests_of_a_checkout / "test_other.py").write_text("def test_it(): pass\n")
    ran = run(pytester, tests_of_a_checkout, workers)
    assert (ran.ret != pytest.ExitCode.OK) == fails, ran.stdout.str()


def test_measured_sweeps_may_be_missing_only_where_there_are_none(tests_of_a_checkout, pytester, monkeypatch):
    monkeypatch.setenv("WASTENOT_TEST_STRICT", "1")
    (tests_of_a_checkout / "test_data.py").write_text("def test_it(shared_data): pass\n")
    run(pytester, tests_of_a_checkout).assert_outcomes(skipped=1)
    (pytester.path / "shared").mkdir()
    run(pytester, tests_of_a_checkout).assert_outcomes(errors=1)
