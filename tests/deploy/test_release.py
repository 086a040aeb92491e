"""A release is refused unless all says its version, and is the same however often it is built."""

import importlib.util
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("release", ROOT / "deploy" / "release.py")
release = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(release)
COMMIT = ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--all", "--message")
EPOCH = 1_700_000_000


@pytest.fixture
def tree(tmp_path):
    """A small repository that is version 1.2.3, committed and tagged."""
    (tmp_path / "deploy" / "helm" / "wastenot").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\nversion = "1.2.3"\n')
    (tmp_path / "deploy" / "helm" / "wastenot" / "Chart.yaml").write_text('version: 0.1.0\nappVersion: "1.2.3"\n')
    (tmp_path / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 1.2.3\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n\n## [1.2.3] - 2026-11-27\n")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    release.git("add", ".", tree=tmp_path)
    release.git(*COMMIT, "first", tree=tmp_path)
    release.git("tag", "v1.2.3", tree=tmp_path)
    return tmp_path


def test_a_tagged_tree_whose_files_say_its_version_has_no_problem(tree):
    assert release.problems("1.2.3", tree) == []


@pytest.mark.parametrize(
    ("file", "before", "after", "says"),
    [
        ("pyproject.toml", "1.2.3", "1.2.4", "pyproject.toml says version '1.2.4': set it to 1.2.3"),
        ("deploy/helm/wastenot/Chart.yaml", "1.2.3", "1.2.4", "Chart.yaml says version '1.2.4'"),
        ("CITATION.cff", "version: 1.2.3", "", "CITATION.cff says version ''"),
        ("CHANGELOG.md", "[1.2.3] - 2026-11-27", "[Unreleased]", "CHANGELOG.md has no section '## [1.2.3] - DATE'"),
    ],
)
def test_what_says_another_version_is_named(tree, file, before, after, says):
    path = tree / file
    path.write_text(path.read_text().replace(before, after))
    assert len(release.problems("1.2.3", tree)) == 2  # and the tree is not clean
    release.git(*COMMIT, "changed", tree=tree)
    release.git("tag", "--force", "v1.2.3", tree=tree)
    [problem] = release.problems("1.2.3", tree)
    assert says in problem


def test_a_commit_without_the_tag_is_refused(tree):
    (tree / "CITATION.cff").write_text("version: 1.2.3\n")
    release.git(*COMMIT, "later", tree=tree)
    assert release.problems("1.2.3", tree) == ["HEAD has no tag v1.2.3: git tag -a v1.2.3"]
    with pytest.raises(SystemExit, match=r"1\.2\.3 is not released"):
        release.release("1.2.3", tree, rehearse=False)
    assert not (tree / "dist").exists()


def _packed(names, mtime, mode):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode, member.uname = len(name), mtime, mode, f"user{mtime}"
            archive.addfile(member, io.BytesIO(name.encode()))
    return packed.getvalue()


def test_an_sdist_keeps_its_files_and_nothing_of_who_packed_it_when():
    one = release.normalised(_packed(["a/b", "a/c"], 1, 0o644), EPOCH)
    assert one == release.normalised(_packed(["a/c", "a/b"], 2, 0o664), EPOCH)
    assert one != release.normalised(_packed(["a/c", "a/b"], 2, 0o755), EPOCH)
    with tarfile.open(fileobj=io.BytesIO(one)) as archive:
        assert {name: archive.extractfile(name).read() for name in archive.getnames()} == {"a/b": b"a/b", "a/c": b"a/c"}


def test_all_that_is_released_says_one_version():
    said = [each for each in release.problems("0.0.0", ROOT) if "says version" in each]
    assert len(said) == 3 and len({each.partition("says version ")[2].partition(":")[0] for each in said}) == 1


def test_documentation_of_versions_lies_side_by_side_and_opens_at_the_newest(tmp_path):
    clone, site = tmp_path / "clone", tmp_path / "site"
    (clone / "docs").mkdir(parents=True)
    for name in ("mkdocs.yml", "CHANGELOG.md"):
        (clone / name).write_text((ROOT / name).read_text().partition("plugins:")[0])
    (clone / "docs" / "index.md").write_text((ROOT / "docs" / "releases.md").read_text())
    for version in ("0.9.1", "0.10.0"):
        release.document(clone, version, sys.executable, site)
    for number in ("0.9", "0.10"):
        page = (site / number / "index.html").read_text()
        assert f"wastenot {number}<" in page and '"version":{"provider":"mike"}' in page and "Unreleased" in page
    assert [each["version"] for each in json.loads((site / "versions.json").read_text())] == ["0.10", "0.9"]
    assert "url=0.10/" in (site / "index.html").read_text()
    (clone / "docs" / "index.md").write_text("[nowhere](nowhere.md)\n")
    with pytest.raises(SystemExit, match=r"0\.11\.0 is not released: (?s:.*)page does not exist"):
        release.document(clone, "0.11.0", sys.executable, site)
    assert not (site / "0.11").exists()


@pytest.mark.slow
def test_two_builds_are_equal_and_a_wheel_of_the_sdist_has_the_same_files(tmp_path):
    python = release.environment(
        tmp_path / "build", "--require-hashes", "--requirement", str(ROOT / "deploy" / "requirements" / "build.txt")
    )
    for name in ("one", "another"):
        subprocess.run(["git", "clone", "--quiet", ROOT, tmp_path / name], check=True)
        for path in (tmp_path / name).rglob("*.py"):
            path.touch()  # as if checked out at another time
        release.build(tmp_path / name, python, tmp_path / f"dist-{name}")
    assert release.digests(tmp_path / "dist-one") == release.digests(tmp_path / "dist-another")
    [sdist] = (tmp_path / "dist-one").glob("*.tar.gz")
    [wheel] = (tmp_path / "dist-one").glob("*.whl")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "sdist", filter="data")
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "LICENSE", "CHANGELOG.md"} < inside and not any(
        name.startswith(("tests", "data")) for name in inside
    )
    [source] = (tmp_path / "sdist").iterdir()
    command = (python, "-c", f"import setuptools.build_meta as b; b.build_wheel({str(tmp_path)!r})")
    subprocess.run(command, cwd=source, check=True, stdout=subprocess.DEVNULL)
    names = [set(zipfile.ZipFile(path).namelist()) for path in (wheel, tmp_path / wheel.name)]
    assert names[0] == names[1]
