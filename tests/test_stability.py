"""What is published of stability: schemas of files, and how what goes says so."""

import json
import tomllib
import warnings
from importlib import resources

import jsonschema
import pytest

import wastenot as wn
from docs.make.stability import SCHEMAS, documents, file_name, text
from testbed.small_pipelines import planned
from wastenot.core.samples import FOLDER
from wastenot.core.stability import deprecated


def test_published_schemas_are_those_that_files_are_read_with():
    there = {path.name: path.read_text() for path in SCHEMAS.iterdir()}
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
