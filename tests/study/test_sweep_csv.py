"""Sweep files as CSV: what is read, what is refused and with which line, what is written."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.sweeps import HEADER, SMALL_CSV, assert_same, large_sweep, small_sweep, sweep_of
from wastenot.core.errors import BadInputError
from wastenot.core.setting import AUTO, Setting
from wastenot.study.sweep import Kernel
from wastenot.study.sweep_file import read_sweep, write_sweep


@pytest.fixture
def read(tmp_path):
    def read_content(content):
        path = tmp_path / "s.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_sweep(path)

    return read_content


@pytest.fixture
def refusal(read, tmp_path):
    def refuse(content):
        with pytest.raises(BadInputError) as caught:
            read(content)
        message = str(caught.value)
        assert "\n" not in message
        assert "\r" not in message
        assert len(message) < 500
        assert message.startswith(f"{tmp_path / 's.csv'}:")
        return message.removeprefix(f"{tmp_path / 's.csv'}:")

    return refuse


def rows(*lines):
    return "\n".join([HEADER, "k,1,,,1.0,1.0", *lines]) + "\n"


def test_reads_the_contract(read):
    sweep = read(SMALL_CSV)
    assert sweep.kernels == (Kernel("qkv", 24), Kernel("mlp", 12))
    assert sweep.kernel_index.tolist() == [0, 0, 1]
    assert [sweep.setting(row) for row in range(3)] == [AUTO, Setting(core_mhz=1200.0), AUTO]
    assert sweep.time_s.tolist() == [0.5, 0.625, 0.25]
    assert sweep.energy_j.tolist() == [100.0, 80.0, 50.0]
    assert np.isnan(sweep.temperature_c).all()
    assert (sweep.workload, sweep.device, sweep.origin) == ("s", "unknown", "measured")


def test_reads_every_optional_column_in_any_order(read):
    header = "temperature_c,calls,effective_memory_mhz,effective_core_mhz,energy_se_j,time_se_s,block,pass,power_limit_w"
    sweep = read(
        f"{header},{HEADER}\n-3.5,100,9501,1785.5,0,1e-3,layer,forward,,k,2,,,1,2\n,,,,,,layer,forward,300,k,2,,,1,2\n"
    )
    assert sweep.kernels == (Kernel("k", 2, "forward", "layer"),)
    assert sweep.power_limit_w[1] == 300
    first = [sweep.temperature_c, sweep.calls, sweep.effective_memory_mhz, sweep.effective_core_mhz]
    assert [column[0] for column in first] == [-3.5, 100, 9501, 1785.5]
    assert (sweep.energy_se_j[0], sweep.time_se_s[0]) == (0, 1e-3)
    assert np.isnan([column[1] for column in first]).all()


def test_order_of_execution_is_that_of_first_appearance(read):
    text = rows("z,1,,,1,1", "a,1,,,1,1", "k,1,300,,1,1")
    assert [kernel.name for kernel in read(text).kernels] == ["k", "z", "a"]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: b"\xef\xbb\xbf" + text.encode(),
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.replace("\n", "\r").encode(),
        lambda text: text.removesuffix("\n").encode(),
        lambda text: text.replace("\n", "\n\n").encode(),
        lambda text: text.replace("24", "24.0").replace("0.5,", " +5e-1 ,").encode(),
        lambda text: text.replace("qkv", '"qkv"').replace("count", " count ").encode(),
    ],
)
def test_reads_the_ways_in_which_programs_write(read, change):
    assert_same(read(change(SMALL_CSV)), read(SMALL_CSV))


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (HEADER.replace(",time_s", ""), "1: time_s: this column is missing"),
        (HEADER + ",time_s", "1: time_s: this column appears twice"),
        (HEADER + ",temperature", "1: 'temperature': unknown column; did you mean temperature_c?"),
        (HEADER + ",Pass", "did you mean pass?"),
        (HEADER + ",zzzz", "remove it. Allowed are kernel, count,"),
        (HEADER + ",", "1: '': unknown column"),
        (HEADER.replace(",", ";"), "separate them by commas"),
        ("\n\n" + HEADER + ",x\ny", "3: "),
    ],
)
def test_refuses_headers(refusal, header, said):
    assert said in refusal(header + "\nk,1,,,1,1\n")


@pytest.mark.parametrize(
    "text",
    ["nan", "NaN", "inf", "-inf", "Infinity", "1_000", "١٢", "１", "0x10", "1,0", "abc", "1e", "--1", "1 2", "∞"],
)
@pytest.mark.parametrize("field", HEADER.split(",")[1:])
def test_refuses_what_is_not_a_number(refusal, field, text):
    values = {"kernel": "k", "count": "1", "core_mhz": "300", "memory_mhz": "405", "time_s": "1", "energy_j": "1"}
    values[field] = f'"{text}"'
    message = refusal(rows(",".join(values.values())))
    assert message.startswith(f"3: {field}: is ")
    assert "must be" in message


@pytest.mark.parametrize(
    "field", ["time_s", "energy_j", "core_mhz", "memory_mhz", "power_limit_w", "effective_core_mhz", "calls"]
)
@pytest.mark.parametrize("text", ["0", "-1", "-0.0", "1e999", "9" * 5000])
def test_refuses_what_is_not_above_zero(refusal, field, text):
    extra = f",{field}" if field not in HEADER else ""
    values = {"kernel": "k", "count": "1", "core_mhz": "", "memory_mhz": "", "time_s": "1", "energy_j": "1"}
    first = ",".join([*values.values(), *([""] if extra else [])])
    values[field] = text
    message = refusal(f"{HEADER}{extra}\n{first}\n{','.join(values.values())}\n")
    assert message.startswith(f"3: {field}: is ")
    assert "must be a finite number above 0" in message


@pytest.mark.parametrize("field", ["time_se_s", "energy_se_j"])
def test_refuses_negative_standard_errors(refusal, field):
    assert refusal(f"{HEADER},{field}\nk,1,,,1,1,0\nk,1,,,1,1,-1e-9\n").startswith(f"3: {field}: is -1e-09")


@pytest.mark.parametrize("field", ["time_s", "energy_j", "count"])
def test_refuses_an_empty_required_field(refusal, field):
    values = {"kernel": "k", "count": "1", "core_mhz": "", "memory_mhz": "", "time_s": "1", "energy_j": "1", field: " "}
    assert refusal(rows(",".join(values.values()))).startswith(f"3: {field}: is empty; must be")


@pytest.mark.parametrize(
    "count", ["0", "-1", "1.5", "3.00000000000000000001", str(2**53 + 1), "9" * 5000, "1e400", "0.5", "-0"]
)
def test_refuses_counts(refusal, count):
    message = refusal(f"{HEADER}\nk,{count},,,1,1\n")
    assert message.startswith("2: count: is ")
    assert "whole number from 1 to 2**53" in message


@pytest.mark.parametrize(("text", "count"), [("3.0", 3), ("1e3", 1000), (str(2**53), 2**53), (str(2**53 - 1), 2**53 - 1)])
def test_takes_whole_counts(read, text, count):
    assert read(f"{HEADER}\nk,{text},,,1,1\n").kernels == (Kernel("k", count),)


def test_refuses_a_kernel_that_changes(refusal):
    assert refusal(rows("k,2,300,,1,1")).startswith("3: count: is 2, but 1 in an earlier row")
    for field in ("pass", "block"):
        text = f"{HEADER},{field}\nk,1,,,1,1,one\nk,1,300,,1,1,two\n"
        assert refusal(text).startswith(f"3: {field}: is 'two', but 'one' in an earlier row")
        assert refusal(text.replace("two", "")).startswith(f"3: {field}: is '', but 'one'")


def test_refuses_a_kernel_without_baseline(refusal):
    message = refusal(rows("k2,1,300,,1,1", "k2,1,,405,1,1"))
    assert message.startswith("3: kernel: 'k2' has no row with all settings empty")
    assert "3: kernel: 'k2'" in refusal(f"{HEADER},power_limit_w\nk,1,,,1,1,\nk2,1,,,1,1,300\n")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("k,1,,,1", "3: row: has 5 fields, the header 6; add"),
        ("k,1,,,1,1,", "3: row: has 7 fields, the header 6; remove"),
        ("gemm<a,b>,1,,,1,1", "quote a name that has a comma"),
        (",1,,,1,1", "3: kernel: is empty"),
        ("  ,1,,,1,1", "3: kernel: is empty"),
        ('"k,1,,,1,1', "3: row: the quoting is broken"),
        ('"k"x,1,,,1,1', "3: row: the quoting is broken"),
        ('"' + "x" * 140_000, "3: row: a field is longer"),
    ],
)
def test_refuses_rows(refusal, row, said):
    assert said in refusal(rows(row))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "1: header: the file is empty"),
        (b"\xef\xbb\xbf", "1: header: the file is empty"),
        (b"\n\r\n", "1: header: the file is empty"),
        (HEADER.encode(), "1: header: there is no row"),
        (SMALL_CSV.encode("utf-16"), "1: byte "),
        (SMALL_CSV.encode().replace(b"mlp", b"m\xfcp"), f"4: byte {SMALL_CSV.index('mlp') + 1}: 0xfc is not UTF-8"),
        (SMALL_CSV.encode().replace(b"mlp", b"m\0p"), f"4: byte {SMALL_CSV.index('mlp') + 1}: is NUL"),
    ],
)
def test_refuses_what_is_not_a_table_of_text(refusal, content, said):
    assert refusal(content).startswith(said)


def test_counts_lines_as_editors_do(refusal):
    text = rows('"two\nlines",1,,,1,1', "", '"two\r\nmore, ""x""",1,,,1,1', "\r\nk,1,300,,bad,1")
    line = text.replace("\r\n", "\n")[: text.replace("\r\n", "\n").index("k,1,300")].count("\n") + 1
    assert refusal(text).startswith(f"{line}: time_s: is 'bad'")


def test_counts_lines_beyond_the_first_piece(refusal):
    lines = [f"k,1,{300 + number},,1,1" for number in range(20_000)]
    lines[15_000] = "k,1,300,,1,oops"
    assert refusal(rows(*lines)).startswith("15003: energy_j: is 'oops'")
    lines[15_000] = "k,1,300"
    assert refusal(rows(*lines)).startswith("15003: row: has 3 fields")


def test_tells_of_the_first_row_when_several_are_wrong(refusal):
    assert refusal(rows("k,1,300,,1,-1", "k,1,300,,0,1", "k,x,,,1,1")).startswith("3: energy_j")


def test_a_message_stays_one_short_line(refusal):
    assert "'bad\\nvalue'" in refusal(rows('k,1,300,,"bad\nvalue",1'))
    refusal(rows(f"k,1,300,,{'x' * 10_000},1"))
    refusal(f"{HEADER},{'y' * 10_000}\n")


def test_refuses_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(BadInputError, match="there is no such file"):
        read_sweep(tmp_path / "none.csv")
    with pytest.raises(BadInputError, match="is a folder"):
        read_sweep(tmp_path)


def test_writes_only_the_columns_that_say_something(tmp_path):
    write_sweep(
        sweep_of([(Kernel("a,b", 2), {}), (Kernel("a,b", 2), {"core_mhz": 1890.0, "memory_mhz": 0.5})]),
        tmp_path / "s.csv",
    )
    text = (tmp_path / "s.csv").read_bytes().decode()
    assert text == f'{HEADER}\r\n"a,b",2,,,1.0,1.0\r\n"a,b",2,1890,0.5,1.0,1.0\r\n'
    write_sweep(small_sweep(), tmp_path / "s.csv")
    header = (tmp_path / "s.csv").read_text().partition("\n")[0]
    assert header == f"{HEADER},power_limit_w,pass,block,time_se_s,effective_core_mhz"


def test_refuses_to_write_what_could_not_be_read(tmp_path):
    path = tmp_path / "s.csv"
    path.write_text("before")
    for bad in (sweep_of([(Kernel("k", 1), {"core_mhz": 300.0})]), sweep_of([(Kernel("n\0l", 1), {})])):
        with pytest.raises(BadInputError, match="kernel"):
            write_sweep(bad, path)
    assert path.read_text() == "before"


def test_full_disk_is_said(tmp_path):
    with pytest.raises(BadInputError, match="/dev/full: cannot be written: No space left"):
        write_sweep(large_sweep(1000), "/dev/full")


@pytest.mark.parametrize(
    "name",
    [
        "rtx3080ti-polybench/sweep.csv",
        "rtx3080ti-polybench/sweep-share.csv",
        "gpu-dvfs/gtx980.csv",
        "gpu-dvfs/v100.csv",
    ],
)
def test_measured_files_come_back_byte_for_byte(shared_data, tmp_path, name):
    sweep = read_sweep(shared_data / name)
    write_sweep(sweep, tmp_path / "copy.csv")
    assert (tmp_path / "copy.csv").read_bytes() == (shared_data / name).read_bytes()


def test_all_that_is_missing_is_said_at_once(tmp_path):
    (tmp_path / "a.csv").write_text("kernel,core_mhz,time_s,energy_j\ngemm,1410,0.01,2\n")
    with pytest.raises(BadInputError, match=r"count, memory_mhz: these columns are missing .*1 if unsure"):
        read_sweep(tmp_path / "a.csv")


def test_the_row_of_the_baseline_is_shown_in_the_order_of_the_file(tmp_path):
    (tmp_path / "a.csv").write_text("kernel,core_mhz,time_s,energy_j,memory_mhz,count\ngemm,1410,0.01,2,,10\n")
    with pytest.raises(BadInputError, match=r"add it, such as gemm,,TIME,ENERGY,,10$"):
        read_sweep(tmp_path / "a.csv")


_ODD_LINES = {
    "quotes": '"a ""b"", c",1,,,1.0,1.0',
    "two lines": '"a\nb",1,,,1.0,1.0',
    "blank": "",
    "a mark of byte order": "\ufeffk,1,,,1.0,1.0",
    "too few fields": "k,1,,,1.0",
    "too many fields": "k,1,,,1.0,1.0,",
    "no number": "k,1,x,,1.0,1.0",
    "an open quote": 'k,1,"x,,1.0,1.0',
    "a lone carriage return": "j,1,,,1.0,1.0\rk,1,,,1.0,1.0",
    "a long field": f"{'x' * 140_000},1,,,1.0,1.0",
}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("odd", _ODD_LINES.values(), ids=_ODD_LINES)
def test_blocks_and_the_reader_read_the_same_and_refuse_the_same(read, monkeypatch, odd, end):
    """Wherever in a file a line is that the reader of the standard library has to take over at."""
    plain = [f"k,1,{100 + line},,{line + 0.1!r},1e-3" for line in range(6)]

    def outcome(content):
        try:
            return read(content)
        except BadInputError as error:
            return str(error)

    for at in range(7):
        for last in ("", end):
            content = end.join([HEADER, "k,1,,,1.0,1.0", *plain[:at], odd, *plain[at:]]) + last
            found = []
            for block in (0, 40, 1 << 18):
                monkeypatch.setattr("wastenot.study.csv_file._BLOCK_BYTES", block)
                found.append(outcome(content))
            with monkeypatch.context() as patch:
                patch.setattr("wastenot.study.csv_file._columns", lambda *_: None)
                expected = outcome(content)
            for each in found:
                assert each == expected if isinstance(expected, str) else assert_same(each, expected) is None


@pytest.mark.parametrize("name", ["=1+1", "+x", "-x", "@x", "'=x", "''@x", "\t=x", "'quoted'", "it's"])
def test_names_that_a_spreadsheet_would_compute_are_guarded_and_read_back(tmp_path, name):
    sweep = sweep_of([(Kernel(name, 1), {})])
    write_sweep(sweep, tmp_path / "s.csv")
    text = (tmp_path / "s.csv").read_text()
    cells = [cell.strip(chr(34)) for line in text.splitlines()[1:] for cell in line.split(",")]
    assert not any(cell.startswith(("=", "+", "@", "-", "\t")) for cell in cells)
    assert read_sweep(tmp_path / "s.csv").kernels[0].name == name
    write_sweep(sweep, tmp_path / "raw.csv", keep_formulas=True)
    assert name in (tmp_path / "raw.csv").read_text() and read_sweep(tmp_path / "raw.csv").kernels[0].name == name
