"""Numbers and pictures in the pages are those that their recipes make, and all of them have one."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

import pytest

from benchmarks.kept import BESIDE
from docs.make.__main__ import listed, main, pages, wanted_by
from docs.make.page import DOCS, IMAGES, blocks_of, packed, table, write_blocks

EVERY = list(pages())
PAGES = {page.name: page for _, page in EVERY}
QUICK = (
    "api",
    "daemon",
    "jobs",
    "judged-jobs",
    "judged-pipelines",
    "judged-serving",
    "mission",
    "pipelines-schedules",
    "serve-control",
    "stability",
)
SLOW = ("h200", "judged-kernels", "natural")
FITTED = (
    "calibration",
    "fingrav",
    "kernels",
)  # fits and sweeps that other processors end elsewhere

_NUMBER = re.compile(r"[+−-]?\d[\d,]*(?:\.\d+)?")


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_page_says_what_its_data_say(name: str) -> None:
    assert blocks_of(PAGES[name].path) == PAGES[name].computed()


@pytest.mark.slow
@pytest.mark.parametrize("name", FITTED)
def test_a_page_says_nearly_what_fits_say(name: str) -> None:
    if name == "calibration" and not BESIDE.is_dir():
        pytest.skip("no measured sweeps")
    assert near(blocks_of(PAGES[name].path), PAGES[name].computed())


def test_every_block_has_a_recipe_and_no_other() -> None:
    assert len(PAGES) == len(EVERY)
    found = {path.relative_to(DOCS).with_suffix("").as_posix(): blocks_of(path).keys() for path in DOCS.rglob("*.md")}
    expected = {name: page.blocks.keys() for name, page in PAGES.items() if page.blocks}
    assert {name: blocks for name, blocks in found.items() if blocks} == expected
    assert expected.keys() == {*QUICK, *SLOW, *FITTED}


def test_every_picture_has_a_recipe_and_is_shown() -> None:
    recipes = [(name, page) for page in PAGES.values() for name in page.pictures]
    assert sorted(name for name, _ in recipes) == sorted(path.name for path in IMAGES.iterdir())
    assert [name for name, page in recipes if f"images/{name}" not in page.path.read_text()] == []


def test_the_list_shows_every_recipe_with_what_it_makes() -> None:
    shown = "\n".join(map(listed, EVERY)).splitlines()
    assert len(shown) == sum(1 + len(page.blocks) + len(page.pictures) + (page.renew is not None) for page in PAGES.values())
    assert [line for line in shown if len(line.split()) < 3] == []


def test_pages_blocks_and_pictures_are_made_by_name() -> None:
    assert wanted_by("judged-serving", EVERY) == (PAGES["judged-serving"], None)
    assert wanted_by("judged-serving:attack", EVERY) == (PAGES["judged-serving"], "attack")
    assert wanted_by("steer-minute.png", EVERY) == (PAGES["simulate"], "steer-minute.png")
    with pytest.raises(SystemExit, match="'judged-serving:minute'"):
        wanted_by("judged-serving:minute", EVERY)


def test_the_runner_makes_what_is_named_and_says_what_it_cannot(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("docs.make.page.IMAGES", tmp_path)
    monkeypatch.setattr("docs.make.simulate.BESIDE", tmp_path)
    monkeypatch.setattr(sys, "argv", ["docs.make", "architecture.svg", "steer-minute.png"])
    with pytest.raises(SystemExit, match=r"^simulate is left out: .*AzureLLMInferenceTrace_conv\.csv"):
        main()
    assert capsys.readouterr().out.splitlines() == ["architecture: architecture.svg", "simulate: steer-minute.png"]
    assert [path.name for path in tmp_path.iterdir()] == ["architecture.svg"]
    assert (tmp_path / "architecture.svg").read_bytes() == (IMAGES / "architecture.svg").read_bytes()


def test_blocks_are_written_and_read(tmp_path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- computed: one -->\n<!-- end -->\ntext\n<!-- computed: two -->\nold\n<!-- end -->\n")
    rows = table("a | b", [["1", "2"]])
    write_blocks(page, {"one": rows})
    assert blocks_of(page) == {"one": "| a | b |\n|---|---|\n| 1 | 2 |\n", "two": "old\n"}
    write_blocks(page, {"one": rows, "two": "new\n"})
    assert page.read_text().endswith("text\n<!-- computed: two -->\nnew\n<!-- end -->\n")
    with pytest.raises(ValueError, match="no block 'three'"):
        write_blocks(page, {"three": ""})


def near(shown: Mapping[str, str], computed: Mapping[str, str]) -> bool:
    """Whether blocks have the same words and nearly the same numbers."""
    if shown.keys() != computed.keys():
        return False
    for name, text in shown.items():
        if _NUMBER.sub("#", text) != _NUMBER.sub("#", computed[name]):
            return False
        for one, other in zip(_NUMBER.findall(text), _NUMBER.findall(computed[name]), strict=True):
            if abs(_value(one) - _value(other)) > 0.05 * abs(_value(one)) + 0.5:
                return False
    return True


def _value(number: str) -> float:
    return float(number.replace(",", "").replace("−", "-"))


def test_near_blocks_have_the_same_words_and_numbers_a_little_apart() -> None:
    assert near({"a": "x 1,000 W at +0.16 %"}, {"a": "x 1,020 W at −0.09 %"})
    assert not near({"a": "x 1,000 W"}, {"a": "x 1,100 W"})
    assert not near({"a": "x 10 W"}, {"a": "y 10 W"})
    assert not near({"a": "10 W"}, {"b": "10 W"})


def test_packed_pictures_stay_as_they_are() -> None:
    picture = (IMAGES / "engine-clocks.png").read_bytes()
    assert packed(picture) == picture
