"""Perseus' CSV: read, written, and refused with one line that names file, line and remedy."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from wastenot.core.errors import BadInputError
from wastenot.core.setting import Setting
from wastenot.pipelines.model.perseus_csv import read_perseus_csv
from wastenot.pipelines.model.profile import PipelineProfile

HEADER = "stage,instruction,frequency,time,energy\n"
ROWS = [
    f"{stage},{name},{clock},{time * 1400 / clock!r},{time * clock / 4!r}\n"
    for stage in range(3)
    for name, time in (("forward", 0.05), ("backward", 0.1))
    for clock in (1410, 1200, 990)
]
GOOD = HEADER + "".join(ROWS)


def reading(tmp_path: Path, text: str | bytes, **more: object) -> PipelineProfile:
    path = tmp_path / "profile.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_perseus_csv(path, **{"waiting_w": 70.0} | more)  # type: ignore[arg-type]


def test_a_profile_is_read(tmp_path: Path) -> None:
    profile = reading(tmp_path, GOOD, device="A100")
    assert (profile.name, profile.device, profile.origin, profile.waiting_w) == ("profile", "A100", "measured", 70.0)
    assert profile.stages == 3
    assert profile.baseline[1, "backward"] == (0.1 * 1400 / 1410, 0.1 * 1410 / 4)
    assert profile.ways[2, "forward"].least_time().choices == (Setting(1410.0),)


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + GOOD.replace("\n", "\r\n"),
        GOOD.replace("\n", "\n\n"),
        "".join(f"{row.rstrip()},x\n" for row in GOOD.splitlines()).replace("energy,x", "energy,note"),
        GOOD.replace("forward", " Forward").replace("stage", "Stage "),
        "".join(",".join(reversed(row.split(","))) + "\n" for row in GOOD.splitlines()),
    ],
    ids=["byte-order-mark", "blank-lines", "more-columns", "spaces-and-capitals", "other-order"],
)
def test_spreadsheets_and_people_may_write_it_their_way(tmp_path: Path, text: str) -> None:
    assert dict(reading(tmp_path, text).baseline) == dict(reading(tmp_path, GOOD).baseline)


def test_default_clocks_are_the_baseline(tmp_path: Path) -> None:
    text = GOOD + "".join(
        f"{stage},{name},auto,{0.06!r},{9.25!r}\n" for stage in range(3) for name in ("forward", "backward")
    )
    profile = reading(tmp_path, text)
    assert dict(profile.baseline) == dict.fromkeys(profile.ways, (0.06, 9.25))
    assert profile.baseline_clocks == "auto"


def without(*lines: str) -> str:
    for line in lines:
        assert line in GOOD
    return "".join(line for line in GOOD.splitlines(keepends=True) if not any(line.startswith(each) for each in lines))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "profile.csv:1: header: the file is empty"),
        (HEADER, "profile.csv:1: row: there are none below the header"),
        (
            GOOD.replace("energy", "joules"),
            "profile.csv:1: header: column energy is missing (in J, of one GPU); give stage,in",
        ),
        (
            "stage," + GOOD.replace("\n", "\n0,"),
            "profile.csv:1: header: column stage appears 2 times; give stage,instruction",
        ),
        (GOOD.replace(",", ";"), "profile.csv:1: header: column stage is missing (from 0); give stage,instruction"),
        (GOOD + "1,forward,1410,0.1\n", "profile.csv:20: row: has 4 fields, the header 5"),
        (GOOD + "1,forward,800,soon,1\n", "profile.csv:20: time: is 'soon'; must be a number (in s, of one micro-batch)"),
        (GOOD + "1,forward,800,,1\n", "profile.csv:20: time: is ''; must be a number (in s, of one micro-batch)"),
        (GOOD + "1,forward,800,nan,1\n", "profile.csv:20: time: is 'nan'; must be a number (in s, of one micro-batch)"),
        (GOOD + "1,forward,800,-0.1,1\n", "profile.csv:20: time: is '-0.1'; must be above 0 and finite"),
        (GOOD + "1,forward,800,1e308,1\n", "profile.csv:20: time: is '1e308'; must be at most 1e+09"),
        (GOOD + "1,forward,800,1e999,1\n", "profile.csv:20: time: is '1e999'; must be above 0 and finite"),
        (GOOD + "1,forward,800,0.1,0\n", "profile.csv:20: energy: is '0'; must be above 0 and finite"),
        (GOOD + "1,forward,-800,0.1,1\n", "profile.csv:20: frequency: is '-800'; must be above 0 and finite"),
        (GOOD + "1.5,forward,800,0.1,1\n", "profile.csv:20: stage: is '1.5'; must be a whole number, at least 0"),
        (GOOD + "-1,forward,800,0.1,1\n", "profile.csv:20: stage: is '-1'; must be a whole number, at least 0"),
        (GOOD + "1e9,forward,800,0.1,1\n", "profile.csv:20: stage: is '1e9'; must be a whole number, at least 0"),
        (GOOD + "1,forwards,800,0.1,1\n", "profile.csv:20: instruction: 'forwards' is unknown; did you mean 'forward'?"),
        (
            GOOD + "1,forward,1410.0,0.1,1\n",
            "profile.csv:20: row: forward of stage 1 at 1410 is already in line 8; keep",
        ),
        (GOOD + '"1,forward', "profile.csv:20: row: the quoting is broken"),
        (GOOD.encode() + b"\xff", "profile.csv:20: byte "),
        (GOOD + "\0", "profile.csv:20: byte "),
        (without("1,"), "profile.csv: stage 1 has no rows, but there are stages up to 2; add them"),
        (without("0,"), "profile.csv: stage 0 has no rows, but there are stages up to 2; add them"),
        (without("2,backward"), "profile.csv: stage 2 has no backward, and stage 0 has (line 5); add its rows"),
        (
            GOOD.replace("backward", "backward_input"),
            "profile.csv: no stage has a backward_weight; a pipeline needs a forward",
        ),
        (
            without("0,backward", "1,backward", "2,backward"),
            "profile.csv: no stage has a backward; a pipeline needs a forward",
        ),
        (without("0,forward", "1,forward", "2,forward"), "profile.csv: no stage has a forward; a pipeline needs a forward"),
        (
            without("1,backward,990"),
            "profile.csv:12: backward of stage 1 has 2 clocks, forward of stage 0 3: 990 missing; add them, or",
        ),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(BadInputError) as error:
        reading(tmp_path, text)
    assert str(error.value).startswith(f"{tmp_path}/{message}")
    assert "\n" not in str(error.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None)
@given(st.data())
def test_any_damage_is_read_or_refused_in_one_line_that_names_the_file(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(GOOD.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        begin = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(begin, min(begin + 30, len(content))))
        content[begin:end] = data.draw(
            st.binary(max_size=6) | st.sampled_from([b"\n", b",", b'"', b"-", b"1e999", b"0", b"auto"])
        )
    try:
        profile = reading(tmp_path, bytes(content))
    except BadInputError as error:
        assert str(error).startswith(f"{tmp_path}/profile.csv:")
        assert len(str(error).splitlines()) == 1
    else:
        assert profile.baseline.keys() == profile.ways.keys()


def test_the_last_stage_needs_no_recomputation(tmp_path: Path) -> None:
    rows = "".join(row.replace("forward", "recomputation") for row in ROWS if "forward" in row and row[0] != "2")
    assert (1, "recomputation") in reading(tmp_path, GOOD + rows).ways
    with pytest.raises(BadInputError, match="stage 1 has no recomputation, and stage 0 has"):
        reading(tmp_path, GOOD + "".join(rows.splitlines(keepends=True)[:3]))


@pytest.mark.parametrize("waiting_w", [-1.0, float("nan"), float("inf")])
def test_waiting_power_is_a_power(tmp_path: Path, waiting_w: float) -> None:
    with pytest.raises(BadInputError, match=r"^profile profile: waiting power of .* W: must be at least 0 and finite$"):
        reading(tmp_path, GOOD, waiting_w=waiting_w)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="there is no such file"):
        read_perseus_csv(tmp_path / "none.csv", waiting_w=70.0)
    with pytest.raises(BadInputError, match="is a folder"):
        read_perseus_csv(tmp_path, waiting_w=70.0)
