from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wastenot.core.errors import BadInputError
from wastenot.serving.model.traces import read_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51,879,55"""
CONVERSATION = Path(__file__).parents[4] / "shared" / "data" / "serving" / "AzureLLMInferenceTrace_conv.csv"


def written(tmp_path: Path, text: str, name: str = "trace.csv") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_azures_csv_without_a_last_line_break(tmp_path: Path) -> None:
    requests = read_trace(written(tmp_path, AZURE)).requests
    np.testing.assert_allclose(requests.arrival_s, [0.0, 4.314579, 4.31941], atol=1e-9)
    assert requests.prompt_tokens.tolist() == [374, 396, 879]
    assert requests.output_tokens.tolist() == [44, 109, 55]


@pytest.mark.parametrize(
    "text",
    [
        "arrival_s,prompt_tokens,output_tokens,who\n5,10,3,a\n5.5,20,4,b\n",
        '{"timestamp": 1000, "input_length": 10, "output_length": 3, "hash_ids": [1]}\n\n'
        '{"timestamp": 1500, "input_length": 20, "output_length": 4, "hash_ids": []}\n',
        "Timestamp,Session ID,Request tokens,Response tokens\n7,x,10,3\n7.5,y,20.0,4\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-12 00:00:00.5+00:00,10,3\n2024-05-12 00:00:01+00:00,20,4\n",
    ],
)
def test_traces_of_other_services_and_ours(tmp_path: Path, text: str) -> None:
    requests = read_trace(written(tmp_path, text)).requests
    assert requests.arrival_s.tolist() == [0.0, 0.5]
    assert requests.prompt_tokens.tolist() == [10, 20]
    assert requests.output_tokens.tolist() == [3, 4]


def _mooncake(*requests: tuple[int, list[int]]) -> str:
    lines = ((1000 * at, prompt, blocks) for at, (prompt, blocks) in enumerate(requests))
    return "\n".join(
        f'{{"timestamp": {at}, "input_length": {prompt}, "output_length": 9, "hash_ids": {blocks}}}'
        for at, prompt, blocks in lines
    )


def test_prompts_find_the_blocks_at_their_beginning_that_were_used_last_in_the_cache(tmp_path: Path) -> None:
    text = _mooncake(
        (1100, [0, 1, 2]), (1500, [0, 1, 3]), (600, [4, 0]), (1024, [0, 1]), (1024, [0, 1]), (1100, [5, 6, 7]), (600, [0, 1])
    )

    def cached(blocks: int | None) -> list[int]:
        found = read_trace(written(tmp_path, text), prefix_blocks=blocks).requests.cached_tokens
        return [] if found is None else found.tolist()

    # Two blocks; none, as 0 is not at its beginning; all but the token that asks for the answer.
    assert cached(100) == [0, 1024, 0, 1023, 1023, 0, 599]
    assert cached(2) == [0, 1024, 0, 512, 1023, 0, 0]  # block 1 has made room for 4, and 5 to 7 for all
    assert cached(None) == []


def test_a_cache_of_prefixes_needs_the_names_of_blocks(tmp_path: Path) -> None:
    text = _mooncake((10, [1])) + '\n{"timestamp": 1500, "input_length": 20, "output_length": 4}'
    with pytest.raises(BadInputError, match=r"trace.csv:2: 'hash_ids' is missing, not a list of whole numbers"):
        read_trace(written(tmp_path, text), prefix_blocks=9)
    assert len(read_trace(written(tmp_path, text), prefix_blocks=9, lenient=True).requests) == 1
    assert len(read_trace(written(tmp_path, text)).requests) == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (AZURE + "\n2023-11-16 18:15:52.1,9", "trace.csv:5: has 2 fields of 3: truncated?; fix the line"),
        (AZURE + "\n2023-11-16 18:15:52.1,9,", "trace.csv:5: 'GeneratedTokens' is '', not a whole number from 1"),
        (AZURE + "\n2023-11-16 18:15:52.1,0,5", "trace.csv:5: 'ContextTokens' is '0', not a whole number from 1"),
        (
            AZURE + "\n2023-11-16 18:15:52.1,1.5,5\n2023-11-16 18:15:53,2",
            "not a whole number from 1 to 1,000,000,000 (and 1 other line like it)",
        ),
        (AZURE + "\nlater,7,5", "trace.csv:5: 'TIMESTAMP' is 'later', not a time"),
        (AZURE + "\n2023-11-16 18:15:49.9,7,5", "trace.csv:5: arrives before the previous request; sort"),
        (AZURE + "\n2023-11-16 18:15:59.9+00:00,7,5", "some times have a time zone and others have none"),
        ("arrival_s,prompt_tokens,output_tokens\nnan,1,1\n", "trace.csv:2: 'arrival_s' is 'nan', not a time"),
        ('{"timestamp": 0, "input_length": 10, "output_length": 3}\n{"timestamp": 1, "inp', ":2: is not JSON: truncated?"),
        ('{"timestamp": 0, "input_length": 10, "output_length": 3}\n{"timestamp": 1}', ":2: 'input_length' is missing"),
        ('{"timestamp": 0, "input_length": 1e400, "output_length": 3}', "'input_length' is inf"),
        ("a,b\n1,2\n", "trace.csv: is not in a known trace format"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "trace.csv: holds no requests"),
        ("", "trace.csv: is empty"),
    ],
)
def test_what_is_wrong_with_a_line_is_said_with_its_number(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInputError) as refused:
        read_trace(written(tmp_path, text))
    assert said in str(refused.value)


def test_lines_that_are_no_requests_are_left_out_and_the_rest_sorted_where_that_is_allowed(tmp_path: Path) -> None:
    path = written(tmp_path, AZURE + "\n2023-11-16 18:15:49.9,7,5\n2023-11-16 18:15:52.1,0,5\n2023-11-16 18:")
    trace = read_trace(path, lenient=True)
    assert trace.requests.prompt_tokens.tolist() == [374, 7, 396, 879]
    assert (np.diff(trace.requests.arrival_s) >= 0).all()
    assert [note.split(": ")[0] for note in trace.left_out] == [f"{path}:6", f"{path}:7"]
    assert trace.moved == 1


def test_a_file_that_cannot_be_read_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot be read: No such file"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInputError, match="is not UTF-8"):
        read_trace(tmp_path / "bytes.csv")


@pytest.mark.skipif(not CONVERSATION.exists(), reason="the trace is not at hand")
def test_the_conversation_trace() -> None:
    requests = read_trace(CONVERSATION).requests
    assert len(requests) == 19_366
    assert len(requests) / requests.arrival_s[-1] == pytest.approx(5.53, abs=0.005)
