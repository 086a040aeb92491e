"""What is published of stability: schemas of files, and how what goes says so."""

import copy
import json
import re
import tomllib
import warnings
from importlib import resources

import jsonschema
import pytest
from hypothesis import given, strategies as st

import wastenot as wn
from docs.make.page import DOCS
from docs.make.printed import merged, publish, recorded, schema_of
from docs.make.stability import documents, text
from testbed import printed, program
from testbed.printed import PRINTED, SCHEMAS, closed, file_name, path_of
from testbed.small_pipelines import planned
from wastenot.core.samples import FOLDER
from wastenot.core.stability import deprecated


def test_published_schemas_are_those_that_files_are_read_with():
    there = {path.name: path.read_text() for path in SCHEMAS.glob("*.json")}
    assert there == {file_name(name): text(name, model) for name, (_, model) in documents().items()}, (
        "python -m docs.make.stability writes them"
    )


def _validate(schema, document):
    jsonschema.Draft202012Validator(json.loads((SCHEMAS / schema).read_text())).validate(document)


def test_files_are_valid_by_the_published_schemas(tmp_path):
    _validate("engine-1.json", json.loads((FOLDER / "engine.json").read_text()))
    _validate("pipeline-1.json", planned().plan.document())
    wn.import_sweep(FOLDER / "sweep.csv", tmp_path / "my.db", device="RTX 3080 Ti")
    plan = wn.plan(tmp_path / "my.db", as_measured=True).document()
    _validate("plan-1.json", plan)
    with pytest.raises(jsonschema.ValidationError):
        _validate("plan-1.json", plan | {"unknown": 1})
    for preset in (resources.files("wastenot.devices.simulated") / "presets").iterdir():
        _validate("gpu-1.json", tomllib.loads(preset.read_text()))


def _keys(schema, place):
    """Names of all properties of a schema and of those that it refers to."""
    if isinstance(schema, list):
        return set().union(*(_keys(each, place) for each in schema))
    if not isinstance(schema, dict):
        return set()
    found = set().union(*(_keys(each, place) for each in schema.values()))
    if (other := str(schema.get("$ref", "#"))).startswith("#"):
        return found | schema.get("properties", {}).keys()
    return found | _keys(json.loads((place.parent / other).read_text()), place.parent / other)


def test_each_document_that_is_printed_has_its_schema_with_every_key_that_is_documented():
    rows = re.findall(r"^\|.*?\[`(wastenot\.[\w-]+/\d+)`\]\(([\w./-]+)\) \| (.*) \|$", (DOCS / "json.md").read_text(), re.M)
    assert {name for name, _, _ in rows} == set().union(*program.SCHEMAS.values()) and len(rows) > 40
    for name, link, what in rows:
        assert DOCS / link == path_of(name)
        told = {*re.findall(r"`([a-z][a-z0-9_]*)`", what)} - {"null"}
        assert not told - _keys(json.loads((DOCS / link).read_text()), DOCS / link), name
    assert {path.name for path in PRINTED.iterdir()} <= {file_name(name) for name, _, _ in rows}
    for path in PRINTED.iterdir():
        jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text()))


SAMPLES = {"schema": "wastenot.samples/1", "samples": [{"name": "sweep.csv", "what": "a sweep"}], "written": []}


def _printed(document):
    printed.printed.append(document)
    printed.check()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda document: document.update(new=1), "'new' was unexpected"),
        (lambda document: document.pop("written"), "'written' is a required property"),
        (lambda document: document.update(written="x"), "'x' is not of type 'array', 'null'"),
        (lambda document: document["samples"][0].update(name=3), "3 is not of type 'null', 'string'"),
    ],
)
def test_a_document_with_another_key_or_type_or_without_one_is_found(change, says, monkeypatch):
    monkeypatch.delenv("WASTENOT_DOCUMENTS", raising=False)
    _printed(SAMPLES)
    document = copy.deepcopy(SAMPLES)
    change(document)
    with pytest.raises(AssertionError, match=says):
        _printed(document)


def test_documents_that_are_recorded_are_published(tmp_path, monkeypatch):
    monkeypatch.setenv("WASTENOT_DOCUMENTS", str(tmp_path))
    monkeypatch.setattr("docs.make.printed.PRINTED", tmp_path)
    monkeypatch.setattr("docs.make.printed.path_of", lambda schema: tmp_path / file_name(schema))
    _printed(SAMPLES)
    _printed(
        {"schema": "wastenot.outer/1", "inner": [None, SAMPLES | {"written": None}], "of": {"a-b": 1, "c": 2.0}, "no": None}
    )
    publish(recorded(tmp_path))
    made = {path.name: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert made["samples-1.json"]["properties"]["written"] == {"type": ["array", "null"], "items": {}}
    outer = made["outer-1.json"]["properties"]
    assert outer["inner"]["items"] == {"anyOf": [{"$ref": "samples-1.json"}, {"type": "null"}]}
    assert outer["of"] == {"type": "object", "additionalProperties": {"type": "number"}}
    assert "type" not in outer["no"]  # a reader may find anything there
    publish([{"schema": "wastenot.outer/1", "of": {}, "no": "why"}])
    kept = json.loads((tmp_path / "outer-1.json").read_text())
    assert kept["properties"] == outer | {"no": {"type": ["null", "string"]}} and kept["required"] == ["no", "of", "schema"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c d"]), inner, max_size=3),
)


@given(VALUES, VALUES)
def test_a_schema_of_two_values_is_of_each(one, other):
    both = merged(schema_of(one), schema_of(other))
    assert both == merged(schema_of(other), schema_of(one)) == merged(both, schema_of(one))
    validator = jsonschema.Draft202012Validator(closed(both))
    validator.validate(one)
    validator.validate(other)


def test_what_goes_warns_where_it_is_called_and_names_what_replaces_it():
    @deprecated(since="1.2", removed="1.4", use="wn.new")
    def old(value, *, factor=1):
        """Doubles."""
        return 2 * value * factor

    with pytest.warns(
        DeprecationWarning, match=r"`old` is deprecated since wastenot 1\.2 and removed in 1\.4: use `wn\.new`"
    ) as told:
        assert old(2, factor=3) == 12
    assert told[0].filename == __file__ and old.__doc__ == "Doubles."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert old(1) == 2


@pytest.mark.parametrize(("removed", "fine"), [("1.3", False), ("1.2", False), ("1.4", True), ("2.0", True)])
def test_what_goes_warns_for_two_minor_versions(removed, fine):
    if fine:
        deprecated("1.2", removed, "wn.new")
    else:
        with pytest.raises(ValueError, match="less than two minor versions"):
            deprecated("1.2", removed, "wn.new")
