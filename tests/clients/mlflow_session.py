"""A session of an unmodified MLflow client with a server: logs runs, reads them, searches, and checks errors.

Usage: mlflow_session.py URI. Prints a JSON object with the ids of what it left.
"""

import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
os.environ["GIT_PYTHON_REFRESH"] = "quiet"

import mlflow
from mlflow.entities import Metric, Param, RunTag, ViewType
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

uri = sys.argv[1]
mlflow.set_tracking_uri(uri)
client = MlflowClient(uri)
version = mlflow.__version__


def refused(code, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except MlflowException as error:
        assert error.error_code == code, (code, error.error_code, str(error))
        return str(error)
    raise AssertionError(f"{call} {args} was not refused")


# Experiments.
assert client.get_experiment("0").name == "Default"
name = f"session {version}"
mlflow.set_experiment(name)
experiment = client.get_experiment_by_name(name)
assert client.get_experiment_by_name("absent") is None
assert experiment.artifact_location == f"mlflow-artifacts:/{experiment.experiment_id}", experiment.artifact_location
refused("RESOURCE_ALREADY_EXISTS", client.create_experiment, name)
refused("RESOURCE_DOES_NOT_EXIST", client.get_experiment, "4711")
other = client.create_experiment(f"other {version}", tags={"team": "a/b"})
client.set_experiment_tag(other, "stage", "draft")
assert client.get_experiment(other).tags == {"team": "a/b", "stage": "draft"}
client.rename_experiment(other, f"renamed {version}")
found = client.search_experiments(filter_string="tags.stage = 'draft' AND name LIKE 'renamed%'")
assert other in [e.experiment_id for e in found], found
client.delete_experiment(other)
assert client.get_experiment(other).lifecycle_stage == "deleted"
assert other in [e.experiment_id for e in client.search_experiments(view_type=ViewType.DELETED_ONLY)]
refused("INVALID_PARAMETER_VALUE", client.create_run, other)
client.restore_experiment(other)
client.create_run(other)

# A typical run.
with mlflow.start_run(run_name="first") as run:
    mlflow.log_params({"lr": 0.1, "model": "ten"})
    mlflow.log_param("note", "é" * 10)
    for step in range(5):
        mlflow.log_metric("loss", 1 / (step + 1), step=step)
    mlflow.log_metrics({"train/acc": 0.5, "nan": math.nan, "inf": math.inf}, step=2)
    mlflow.set_tag("kind", "test")
    mlflow.log_text("hello", "notes/a.txt")
    mlflow.log_dict({"a": 1}, "b.json")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "empty").touch()
        Path(folder, "sub").mkdir()
        Path(folder, "sub/large.bin").write_bytes(b"x" * 3_000_000)
        mlflow.log_artifacts(folder, "files")
    first = run.info.run_id
back = client.get_run(first)
assert (back.info.status, back.info.run_name, back.data.tags["mlflow.runName"]) == ("FINISHED", "first", "first"), back.info
assert back.info.end_time >= back.info.start_time > 1_600_000_000_000
assert back.data.params == {"lr": "0.1", "model": "ten", "note": "é" * 10}, back.data.params
metrics = back.data.metrics
assert (metrics["loss"], metrics["train/acc"], metrics["inf"]) == (0.2, 0.5, math.inf) and math.isnan(metrics["nan"]), metrics
history = client.get_metric_history(first, "loss")
assert [(point.step, point.value) for point in history] == [(n, 1 / (n + 1)) for n in range(5)], history
assert client.get_metric_history(first, "absent") == []

# Artifacts.
listed = {file.path: (file.is_dir, file.file_size) for file in client.list_artifacts(first)}
assert {path: is_dir for path, (is_dir, _) in listed.items()} == {"b.json": False, "files": True, "notes": True}, listed
assert listed["b.json"][1] > 5 and listed["files"][1] is None, listed
assert [file.path for file in client.list_artifacts(first, "files")] == ["files/empty", "files/sub"]
assert client.list_artifacts(first, "absent") == []
with tempfile.TemporaryDirectory() as folder:
    place = Path(client.download_artifacts(first, "files", folder))
    assert place.joinpath("sub/large.bin").stat().st_size == 3_000_000 and place.joinpath("empty").stat().st_size == 0
assert mlflow.artifacts.load_text(f"runs:/{first}/notes/a.txt") == "hello"

# Batches: out of order, sent twice, too large.
run = client.create_run(experiment.experiment_id, run_name="batch", start_time=1000)
id = run.info.run_id
assert run.info.start_time == 1000
points = [Metric("m", 3.0, 30, 3), Metric("m", 1.0, 10, 1), Metric("m", 2.0, 20, 2), Metric("m", -1.0, 5, -7)]
for _ in range(2):
    client.log_batch(id, metrics=points, params=[Param("p", "1")], tags=[RunTag("t", "x" * 9000)])
assert client.get_run(id).data.metrics == {"m": 3.0}
assert [(p.step, p.timestamp) for p in client.get_metric_history(id, "m")] == [(-7, 5), (1, 10), (2, 20), (3, 30)]
assert len(client.get_run(id).data.tags["t"]) in (5000, 8000)
many = [Metric("many", float(n), n, n) for n in range(1000)]
client.log_batch(id, metrics=many)
assert len(client.get_metric_history(id, "many")) == 1000
refused("INVALID_PARAMETER_VALUE", client.log_param, id, "p", "2")
assert "p" in client.get_run(id).data.params and client.get_run(id).data.params["p"] == "1"
refused("INVALID_PARAMETER_VALUE", client.log_metric, id, "bad\nname", 1.0)
refused("INVALID_PARAMETER_VALUE", client.log_metric, id, "../name", 1.0)
refused("INVALID_PARAMETER_VALUE", client.set_tag, id, "x" * 251, "long")
client.set_tag(id, "gone", "soon")
client.delete_tag(id, "gone")
refused("RESOURCE_DOES_NOT_EXIST", client.delete_tag, id, "gone")
refused("RESOURCE_DOES_NOT_EXIST", client.get_run, "0" * 32)
client.set_terminated(id, "FAILED", end_time=2000)
client.update_run(id, name="renamed")
back = client.get_run(id)
assert (back.info.status, back.info.end_time, back.info.run_name) == ("FAILED", 2000, "renamed"), back.info
assert back.data.tags["mlflow.runName"] == "renamed"
# Points after the end of a run are stored, and duplicate points are dropped.
client.log_metric(id, "m", 4.0, timestamp=40, step=4)
client.log_batch(id, metrics=points)
assert len(client.get_metric_history(id, "m")) == 5 and client.get_run(id).data.metrics["m"] == 4.0

# Deleted runs.
client.delete_run(id)
assert client.get_run(id).info.lifecycle_stage == "deleted"
refused("INVALID_PARAMETER_VALUE", client.log_metric, id, "m", 1.0)
ids = lambda found: {run.info.run_id for run in found}
search = lambda filter="", **more: client.search_runs([experiment.experiment_id], filter, **more)
assert ids(search()) == {first} and ids(search(run_view_type=ViewType.ALL)) == {first, id}
client.restore_run(id)

# Searches.
for n in range(7):
    with mlflow.start_run(run_name=f"n{n}"):
        mlflow.log_metric("score", n % 3)
        mlflow.log_param("n", n)
assert len(search("metrics.score >= 1")) == 4
assert len(search("metrics.score >= 1 and params.n != '5'")) == 3
assert ids(search("attributes.run_name = 'first' and tags.kind LIKE 't%'")) == {first}
assert ids(search("status = 'FAILED'")) == {id}
ordered = [run.data.params["n"] for run in search("params.n LIKE '_'", order_by=["metrics.score DESC", "start_time ASC"])]
assert ordered == ["2", "5", "1", "4", "0", "3", "6"], ordered
pages, token = [], None
while True:
    page = search("params.n LIKE '%'", max_results=3, page_token=token)
    pages.append(len(page))
    token = page.token
    if not token:
        break
assert pages == [3, 3, 1], pages
for wrong in ["metrics.score > 'x'", "params.n > '1'", "nonsense", "a = 'b' or c = 'd'", "status ~ 'x'"]:
    refused("INVALID_PARAMETER_VALUE", search, wrong)
refused("INVALID_PARAMETER_VALUE", search, "", max_results=50_001)

# A run that is still open when the session ends; nested runs; resuming a run.
with mlflow.start_run(run_name="parent") as parent:
    with mlflow.start_run(run_name="child", nested=True) as child:
        mlflow.log_metric("loss", 2.0)
assert client.get_run(child.info.run_id).data.tags["mlflow.parentRunId"] == parent.info.run_id
with mlflow.start_run(run_id=first):
    assert client.get_run(first).info.status == "RUNNING"
    mlflow.log_metric("loss", 0.1, step=9)
assert client.get_run(first).info.status == "FINISHED"
open_run = client.create_run(experiment.experiment_id, run_name="open")
client.log_metric(open_run.info.run_id, "loss", 7.0, step=1, timestamp=int(time.time() * 1000))

print(json.dumps({"first": first, "open": open_run.info.run_id, "experiment": experiment.experiment_id}))
