"""Reads an export with the tools that it is made for, and compares it with what the run reported.

Usage: read_export.py FORMAT FOLDER EXPECTED, where EXPECTED is a JSON list of {address, metrics, matrix}.
"""

import json
import math
import os
import sys
from pathlib import Path

form, folder, expected = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
with_points = [task for task in expected if task["metrics"]]
assert len(with_points) >= 8, expected


def close(a, b):
    assert math.isclose(a, b, rel_tol=1e-6), (a, b)


def check_tables(metrics, params, tasks):
    """The three tables, each as a list of dicts."""
    assert [row["task"] for row in tasks] == [task["address"] for task in expected]
    assert {row["state"] for row in tasks} == {"succeeded"}
    for task in expected:
        own = [row for row in metrics if row["task"] == task["address"]]
        assert {row["metric"] for row in own} == set(task["metrics"])
        for name, last in task["metrics"].items():
            curve = [row for row in own if row["metric"] == name]
            assert curve[-1]["value"] == last, (name, curve)
            assert all(row["time"] > 1_600_000_000_000 for row in curve)
        values = {row["name"]: row["value"] for row in params if row["task"] == task["address"]}
        for axis, value in task["matrix"].items():
            assert float(values[f"matrix.{axis}"]) == value, values
    losses = [row["step"] for row in metrics if row["task"] == expected[0]["address"] and row["metric"] == "loss"]
    assert losses == [1, 2, 3, 4, 5], losses


if form == "csv":
    import duckdb
    import pandas

    check_tables(*(pandas.read_csv(folder / f"{name}.csv").to_dict("records") for name in ["metrics", "params", "tasks"]))
    count = duckdb.sql(f"select count(*) from '{folder}/metrics.csv' where metric = 'loss'").fetchall()
    assert count == [(20,)], count
elif form == "jsonl":
    read = lambda name: [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
    check_tables(read("metrics"), read("params"), read("tasks"))
elif form == "parquet":
    import pandas
    import polars

    check_tables(*(polars.read_parquet(folder / f"{name}.parquet").to_dicts() for name in ["metrics", "params", "tasks"]))
    assert len(pandas.read_parquet(folder / "metrics.parquet")) == polars.read_parquet(folder / "metrics.parquet").height
elif form == "mlflow":
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"file://{folder}")
    [experiment] = [found for found in client.search_experiments() if found.name == "command-example (run 1)"]
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id], max_results=1000)}
    assert set(runs) == {task["address"] for task in expected}, runs
    for task in expected:
        run = runs[task["address"]]
        assert run.info.status == "FINISHED"
        assert run.data.metrics == task["metrics"], (run.data.metrics, task)
        assert run.data.tags["assay.run"] == "1"
        for axis, value in task["matrix"].items():
            assert float(run.data.params[f"matrix.{axis}"]) == value
    first = runs[expected[0]["address"]]
    history = client.get_metric_history(first.info.run_id, "loss")
    assert [point.step for point in history] == [1, 2, 3, 4, 5], history
    assert all(point.timestamp > 1_600_000_000_000 for point in history)
    assert [file.path for file in client.list_artifacts(first.info.run_id)] == ["result"]
    assert float(Path(client.download_artifacts(first.info.run_id, "result/loss.txt")).read_text()) > 0
    filtered = client.search_runs([experiment.experiment_id], "metrics.final > 0 and params.`matrix.rate` = '0.5'")
    assert len(filtered) == 0 or all("judge" in run.info.run_name for run in filtered)
elif form == "tensorboard":
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folders = [entry for entry in folder.iterdir() if entry.is_dir()]
    assert len(folders) == len(with_points), folders
    for task in with_points:
        [own] = [entry for entry in folders if entry.name == task["address"]]
        events = EventAccumulator(str(own)).Reload()
        assert set(events.Tags()["scalars"]) == set(task["metrics"]), events.Tags()
        for name, last in task["metrics"].items():
            close(events.Scalars(name)[-1].value, last)
        assert events.Tags()["tensors"] == ["parameters"], events.Tags()
    events = EventAccumulator(str(folder / expected[0]["address"])).Reload()
    curve = events.Scalars("loss")
    assert [point.step for point in curve] == [1, 2, 3, 4, 5]
    assert all(point.wall_time > 1_600_000_000 for point in curve)
else:
    raise SystemExit(f"unknown form {form}")
print("ok")
