from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import heedful
import pytest
from conftest import LONG

RECORD = {"experiment": "lm", "dataset": "d", "attention": "a", "backend": "flex", "seed": 1, "metrics": {"perplexity": None}}


def folder_of(path: Path, records: object, log: str | None = None) -> Path:
    (path / "results.json").write_text(json.dumps(records))
    if log is not None:
        (path / "a-seed1").mkdir()
        (path / "a-seed1" / "log.jsonl").write_text(log)
    return path


def test_a_run_of_the_program_is_read_as_it_was_recorded(trained: Path) -> None:
    results = heedful.load(trained)
    raw = {record["attention"]: record for record in json.loads((trained / "results.json").read_text())}
    assert [row["attention"] for row in results.records] == list(raw) == ["dot-product", LONG]
    for row in results.records:
        record = raw[row["attention"]]
        assert row["accuracy"] == record["metrics"]["accuracy"]
        assert row["machine.cpu"] == record["machine"]["cpu"] and row["budget.steps"] == 4 and row["seed"] == 1

        curve = [point for point in results.curves if point["attention"] == row["attention"]]
        assert [point["step"] for point in curve] == [2, 4]
        assert all(point["loss"] > 0 and point["learning_rate"] > 0 and 0 <= point["dev.accuracy"] <= 1 for point in curve)

        right = [item["right"] for item in results.items if item["attention"] == row["attention"]]
        assert sum(right) / len(right) == pytest.approx(row["accuracy"])


def test_recorded_scores_stand_under_their_own_names(recorded: Path) -> None:
    results = heedful.load(recorded / "built-in-mt")
    (row,) = [row for row in results.records if row["attention"] == "dot-product"]
    assert (row["BLEU"], row["parameters"], row["parameters_by_part.encoder"]) == (96.1560329132705, 125824, 49856)
    assert row["signatures.BLEU"].startswith("nrefs:1|")
    curve = [point for point in results.curves if point["attention"] == "dot-product"]
    assert [point["step"] for point in curve] == list(range(50, 601, 50))
    # Step 200 is evaluated: the seconds are those of the step, before the evaluation.
    (point,) = [point for point in curve if point["step"] == 200]
    assert (point["loss"], point["dev.perplexity"], point["seconds"]) == (1.6692242048711172, 2.2081873976335435, 3.865913134)
    assert curve[0]["dev.perplexity"] is None
    assert len(results.items) == 0 and results.items.columns == []


def test_runs_are_found_in_folders_of_data_sets_and_under_awkward_names(recorded: Path) -> None:
    glue = heedful.load(recorded / "glue")
    assert {row["dataset"] for row in glue.curves} == {"CoLA", "MRPC", "RTE"}
    images = heedful.load(recorded / "mnist-super-resolution")
    names = {row["attention"] for row in images.records}
    assert "{decoder=local-1d,cross=uniform}" in names and {row["attention"] for row in images.curves} == names


def test_items_make_the_recorded_scores(recorded: Path) -> None:
    results = heedful.load(recorded / "claims" / "R1")
    raw = json.loads((recorded / "claims" / "R1" / "results.json").read_text())
    checked = 0
    for record in raw:
        for metric, score in record.get("items", {}).items():
            of_run = [item for item in results.items if (item["attention"], item["seed"], item["set"]) == (record["attention"], record["seed"], score["set"])]
            if score["combination"] == "mean":
                value = sum(item[score["statistics"][0]] for item in of_run) / len(of_run)
            elif score["combination"] == "ratio":
                part, whole = score["statistics"]
                value = sum(item[part] for item in of_run) / sum(item[whole] for item in of_run)
            else:
                continue
            assert value == pytest.approx(record["metrics"][metric], rel=1e-6)
            checked += 1
    assert checked > 20
    assert any(" " in item["set"] for item in results.items)


def test_steps_of_a_resumed_run_count_once_and_a_line_that_was_cut_short_does_not(tmp_path: Path) -> None:
    log = "".join(f'{{"step":{step},"loss":{loss}}}\n' for step, loss in [(1, 9.0), (2, 8.0), (3, 7.0), (2, 6.0)]) + '{"step":3,"lo'
    results = heedful.load(folder_of(tmp_path, [RECORD], log))
    assert [(row["step"], row["loss"]) for row in results.curves] == [(1, 9.0), (2, 6.0), (3, 7.0)]


def test_records_of_earlier_versions_are_whole(tmp_path: Path) -> None:
    (row,) = heedful.load(folder_of(tmp_path, [RECORD])).records
    assert row["perplexity"] is None and row["disturbed"] is False and row["is_model"] is False


def test_a_score_that_is_called_like_a_field_replaces_nothing(tmp_path: Path) -> None:
    record = {**RECORD, "steps": 7, "metrics": {"steps": 2.5}}
    (row,) = heedful.load(folder_of(tmp_path, [record])).records
    assert (row["steps"], row["metrics.steps"]) == (7, 2.5)


def test_rows_of_a_table_have_the_same_columns() -> None:
    table = heedful.Table([{"a": 1}, {"b": 2}])
    assert table == [{"a": 1, "b": None}, {"a": None, "b": 2}] and table.columns == ["a", "b"]
    assert repr(table) == "<Table of 2 rows: a, b>"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[{"experiment": "lm",\n]', "damaged in line 2"),
        ('{"experiment": "lm"}', "a list of records"),
        ('[{"experiment": "lm"}]', "no `dataset` that can be read in record 1"),
        (json.dumps([RECORD, {**RECORD, "metrics": [1]}]), "no `metrics` that can be read in record 2"),
        (b"\xff", "cannot be read"),
    ],
)
def test_damaged_results_are_refused_by_the_name_of_the_file(tmp_path: Path, text: str | bytes, problem: str) -> None:
    (tmp_path / "results.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(heedful.ResultsError, match="results.json") as caught:
        heedful.load(tmp_path)
    assert problem in str(caught.value) and caught.value.path == tmp_path / "results.json"


def test_a_folder_without_results_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(heedful.ResultsError, match="nowhere` is no folder; give the --out"):
        heedful.load(tmp_path / "nowhere")
    with pytest.raises(heedful.ResultsError, match="at least one finished run"):
        heedful.load(tmp_path)
    for name in ["b", "a"]:
        (tmp_path / name).mkdir()
        folder_of(tmp_path / name, [RECORD])
    with pytest.raises(heedful.ResultsError, match="load one of the folders in it: a, b"):
        heedful.load(str(tmp_path))


@pytest.mark.parametrize("line", ["nonsense", '{"loss":1.0}', "[1]", '{"step":1,"dev":3}'])
def test_a_damaged_log_is_refused_by_its_line(tmp_path: Path, line: str) -> None:
    results = heedful.load(folder_of(tmp_path, [RECORD], f'{{"step":1,"loss":1.0}}\n{line}\n'))
    with pytest.raises(heedful.ResultsError, match=r"log\.jsonl` .* line 2"):
        _ = results.curves


@pytest.mark.parametrize("text", ["{", "[]", '{"statistics": ["right"], "rows": 3}', '{"statistics": ["right"], "rows": [[1], [1, 2]]}'])
def test_damaged_items_are_refused_by_the_name_of_the_file(tmp_path: Path, text: str) -> None:
    results = heedful.load(folder_of(tmp_path, [RECORD], ""))
    (tmp_path / "a-seed1" / "items").mkdir()
    (tmp_path / "a-seed1" / "items" / "test.json").write_text(text)
    with pytest.raises(heedful.ResultsError, match=r"test\.json"):
        _ = results.items


def test_tables_become_data_frames(recorded: Path) -> None:
    pandas = pytest.importorskip("pandas")
    results = heedful.load(recorded / "glue")
    frame = results.records.to_pandas()
    assert len(frame) == len(results.records) and frame["disturbed"].dtype == bool and frame["accuracy"].dtype == float
    means = frame[frame["dataset"] == "MRPC"].groupby("attention")["accuracy"].mean()
    of_one = [row["accuracy"] for row in results.records if (row["dataset"], row["attention"]) == ("MRPC", "gaussian")]
    assert means["gaussian"] == pytest.approx(sum(of_one) / len(of_one))
    assert pandas.DataFrame(results.curves)["loss"].notna().any()


def test_without_pandas_tables_are_lists_and_the_error_names_the_remedy(recorded: Path) -> None:
    code = """
import sys
sys.modules["pandas"] = sys.modules["numpy"] = None
import heedful
records = heedful.load(sys.argv[1]).records
assert isinstance(records, list) and records[0]["BLEU"] > 0
try:
    records.to_pandas()
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code, str(recorded / "built-in-mt")], check=True, capture_output=True, text=True)
    assert done.stdout == "Table.to_pandas needs pandas: pip install heedful[pandas]\n"


def test_values_of_other_types_are_errors_that_name_the_file(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, object], str | None, str | None]] = [
        ({"items": [1]}, None, None),
        ({"items": {"x": 3}}, None, None),
        ({}, '{"step": 1, "loss": 2}\n{"step": "a", "loss": 2}\n', None),
        ({}, "[" * 100_000 + "\n", None),
        ({}, None, "[" * 100_000),
    ]
    for number, (record, log, items) in enumerate(cases):
        (tmp_path / str(number)).mkdir()
        folder = folder_of(tmp_path / str(number), [{**RECORD, **record}], log or '{"step": 1, "loss": 2}\n')
        if items is not None:
            (folder / "a-seed1" / "items").mkdir()
            (folder / "a-seed1" / "items" / "test.json").write_text(items)
        with pytest.raises(heedful.ResultsError, match=str(folder)):
            results = heedful.load(folder)
            results.curves, results.items


def test_a_statistic_that_is_called_like_a_column_does_not_replace_it(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, [RECORD], '{"step": 1, "loss": 2}\n')
    (folder / "a-seed1" / "items").mkdir()
    (folder / "a-seed1" / "items" / "test.json").write_text(json.dumps({"statistics": ["seed", "right"], "rows": [[7, 1]]}))
    assert [(row["seed"], row["statistics.seed"], row["right"]) for row in heedful.load(folder).items] == [(1, 7, 1)]
