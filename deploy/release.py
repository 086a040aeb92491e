"""All of a release but the upload: ``python deploy/release.py VERSION [--rehearse]``, in a checkout of the tag ``vVERSION``.

    refused unless   the tree is clean, the tag is at HEAD, and pyproject.toml, the Helm chart, CITATION.cff and CHANGELOG.md
                     say VERSION
    tested           by .ci/run in a clone of the tag: checks, documentation, schemas, every test
    built twice      in two clones, and refused unless wheel and sdist are equal byte for byte
    documented       into dist/site/X.Y, beside other versions (dist/site is what a web server serves), or it is refused
    dist/VERSION     wheel, sdist, sbom.cdx.json (CycloneDX), licences.csv, provenance.intoto.json, SHA256SUMS

``--rehearse`` builds HEAD into ``dist/rehearsal`` whatever was refused, and leaves the tests out. The provenance is a
statement of SLSA 1.0 that is not signed: whoever publishes signs it, or has a forge do so.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from datetime import UTC, datetime
from pathlib import Path

SBOM = "cyclonedx-bom==7.5.0"
EXTRAS = "report,postgresql,nvidia,amd,serve,otel,steps"
"""That the bill of materials lists: all but PyTorch and Ray, whose versions users choose."""
BUILD = "import setuptools.build_meta as b; b.build_wheel({0!r}); b.build_sdist({0!r})"


def git(*arguments: str, tree: Path) -> str:
    """What git prints."""
    return subprocess.run(["git", "-C", str(tree), *arguments], check=True, capture_output=True, text=True).stdout.strip()


def problems(version: str, tree: Path) -> list[str]:
    """Why a tree is no release of a version, each with its remedy."""
    found = []
    if changed := git("status", "--porcelain", tree=tree):
        found.append(f"{len(changed.splitlines())} files differ from HEAD: commit or remove them (git status)")
    if f"v{version}" not in git("tag", "--points-at", "HEAD", tree=tree).splitlines():
        found.append(f"HEAD has no tag v{version}: git tag -a v{version}")
    said = {
        "pyproject.toml": tomllib.loads((tree / "pyproject.toml").read_text())["project"]["version"],
        "deploy/helm/wastenot/Chart.yaml": _after("appVersion: ", tree / "deploy/helm/wastenot/Chart.yaml"),
        "CITATION.cff": _after("version: ", tree / "CITATION.cff"),
    }
    found += [f"{name} says version {other!r}: set it to {version}" for name, other in said.items() if other != version]
    changes = (tree / "CHANGELOG.md").read_text()
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        found.append(f"CHANGELOG.md has no section '## [{version}] - DATE': rename Unreleased")
    return found


def _after(start: str, path: Path) -> str:
    lines = (line for line in path.read_text().splitlines() if line.startswith(start))
    return next(lines, "").removeprefix(start).strip("\"'")


def build(clone: Path, python: Path, out: Path) -> None:
    """Wheel and sdist of a clone, with the times of its commit."""
    epoch = int(git("log", "-1", "--format=%ct", tree=clone))
    out.mkdir()
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run(
        [python, "-c", BUILD.format(str(out))],
        cwd=clone,
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
        umask=0o022,
    )
    for sdist in out.glob("*.tar.gz"):
        sdist.write_bytes(normalised(sdist.read_bytes(), epoch))


def normalised(sdist: bytes, epoch: int) -> bytes:
    """The same files in the order of their names, of one time and no owner, as setuptools keeps those of the disk."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(sdist)) as there, tarfile.open(fileobj=plain, mode="w") as made:
        for member in sorted(there.getmembers(), key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode, member.pax_headers = 0o755 if member.isdir() or member.mode & 0o100 else 0o644, {}
            made.addfile(member, there.extractfile(member) if member.isfile() else None)
    return gzip.compress(plain.getvalue(), mtime=epoch)


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each file, by name."""
    return {path.name: _sha256(path) for path in sorted(folder.iterdir()) if path.is_file()}


def environment(folder: Path, *requirements: str) -> Path:
    """The Python of a new environment with some packages."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements], check=True)
    return python


def write_sbom(tree: Path, wheel: Path, out: Path, room: Path) -> None:
    """What the wheel with its extras installs, at the versions that are tested, with licences."""
    constraints = str(tree / "constraints.txt")
    python = environment(room / "installed", "--constraint", constraints, f"{wheel}[{EXTRAS}]")
    tool = environment(room / "tool", SBOM)
    command = (tool, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--pyproject", tree / "pyproject.toml")
    sbom = out / "sbom.cdx.json"
    subprocess.run([*command, "--output-file", sbom, python], check=True, stderr=subprocess.DEVNULL)
    parts = json.loads(sbom.read_text())["components"]
    with (out / "licences.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("package", "version", "licences"))
        rows.writerows(sorted((part["name"], part["version"], _licences(part)) for part in parts))


def _licences(part: dict[str, list[dict[str, dict[str, str] | str]]]) -> str:
    found = [each.get("expression") or each["license"] for each in part.get("licenses", ())]
    return "; ".join(each if isinstance(each, str) else each.get("id") or each["name"].partition("\n")[0] for each in found)


def document(clone: Path, version: str, python: Path, site: Path) -> Path:
    """Build a clone's documentation into ``site/X.Y``, where each page says X.Y and lets readers choose another version.

    That choice is the theme's and reads ``versions.json`` (https://zensical.org/docs/setup/versioning). mike, which writes
    that file there, keeps sites on a branch of git and is not needed for it.
    """
    number = ".".join(version.split(".")[:2])
    settings = re.sub(r"(?m)^site_name: .*", rf"\g<0> {number}", (clone / "mkdocs.yml").read_text())
    (clone / "versioned.yml").write_text(f"{settings}extra: {{version: {{provider: mike}}}}\n")
    command = (python, "-m", "zensical", "build", "--clean", "--strict", "--config-file", "versioned.yml")
    done = subprocess.run(command, cwd=clone, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"wastenot {version} is not released: its documentation fails:\n{done.stdout}{done.stderr}")
    shutil.rmtree(site / number, ignore_errors=True)
    shutil.copytree(clone / "site", site / number)
    there = (path.name for path in site.iterdir() if path.is_dir())
    numbers = sorted(there, key=lambda each: [*map(int, each.split("."))], reverse=True)
    (site / "versions.json").write_text(json.dumps([{"version": each, "title": each, "aliases": []} for each in numbers]))
    (site / "index.html").write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={numbers[0]}/">\n')
    return site / number


def provenance(tree: Path, version: str, made: dict[str, str]) -> dict[str, object]:
    """What was built from what: a statement of in-toto with SLSA's predicate (https://slsa.dev/spec/v1.0/provenance)."""
    commit, tools = git("rev-parse", "HEAD", tree=tree), "deploy/requirements/build.txt"
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in made.items()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "python deploy/release.py VERSION",
                "externalParameters": {"version": version},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": commit}},
                    {"name": tools, "digest": {"sha256": _sha256(tree / tools)}},
                ],
            },
            "runDetails": {
                "builder": {"id": f"python {sys.version.split()[0]} on {os.uname().sysname} {os.uname().machine}"},
                "metadata": {"finishedOn": datetime.now(UTC).isoformat(timespec="seconds")},
            },
        },
    }  # fmt: skip


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def release(version: str, tree: Path, rehearse: bool) -> Path:
    """Test and build; returns the folder of what was made."""
    if (wrong := problems(version, tree)) and not rehearse:
        sys.exit(f"wastenot {version} is not released:\n" + "\n".join(f"  {each}" for each in wrong))
    for each in wrong:
        print(f"  a release would be refused: {each}")
    with tempfile.TemporaryDirectory(prefix="wastenot-release-") as name:
        room = Path(name)
        clones = [room / "one" / "wastenot", room / "another" / "wastenot"]
        for clone in clones:
            subprocess.run(["git", "clone", "--quiet", str(tree), str(clone)], check=True)
            git("checkout", "--quiet", git("rev-parse", "HEAD", tree=tree), tree=clone)
        locked = str(tree / "deploy" / "requirements" / "build.txt")
        python = environment(room / "build", "--require-hashes", "--requirement", locked)
        for clone in clones:
            build(clone, python, clone.parent / "dist")
        made, again = (digests(clone.parent / "dist") for clone in clones)
        if made != again:
            sys.exit(f"wastenot {version} is not released: two builds differ: {made} and {again}")
        out = clones[0].parent / "dist"
        print(f"  built twice, equal: {', '.join(made)}")
        write_sbom(tree, next(out.glob("*.whl")), out, room)
        if not rehearse:
            subprocess.run(["bash", ".ci/run"], cwd=clones[1], check=True)
        tools = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["optional-dependencies"]["docs"]
        python = environment(room / "docs", "--constraint", str(tree / "constraints.txt"), *tools)
        pages = document(clones[1], version, python, out / "site" if rehearse else tree / "dist" / "site")
        print(f"  documented in {pages.relative_to(out.parent if rehearse else tree)}")
        (out / "provenance.intoto.json").write_text(json.dumps(provenance(tree, version, made), indent=2) + "\n")
        (out / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in digests(out).items()))
        target = tree / "dist" / ("rehearsal" if rehearse else version)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(out, target)
    return target


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0].partition(":")[0])
    parser.add_argument("version", help="such as 1.0.0")
    parser.add_argument("--rehearse", action="store_true", help="build HEAD, whatever would be refused, without the tests")
    asked = parser.parse_args()
    made = release(asked.version, Path(__file__).resolve().parents[1], asked.rehearse)
    print(f"wastenot {asked.version} is in {made}. Nothing was uploaded: twine upload {made}/*.whl {made}/*.tar.gz")


if __name__ == "__main__":
    main()
