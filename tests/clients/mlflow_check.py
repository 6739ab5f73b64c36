"""Reads the runs of mlflow_session.py after a restart of the server, and continues the run that is still open.

Usage: mlflow_check.py URI LEFT, where LEFT is what the session printed.
"""

import json
import os
import sys

os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] = "0"
import mlflow
from mlflow.tracking import MlflowClient

mlflow.set_tracking_uri(sys.argv[1])
client, left = MlflowClient(), json.loads(sys.argv[2])
first = client.get_run(left["first"])
assert first.info.status == "FINISHED" and first.data.metrics["loss"] == 0.1, first.data
assert [point.step for point in client.get_metric_history(left["first"], "loss")] == [0, 1, 2, 3, 4, 9]
assert len(client.list_artifacts(left["first"])) == 3
run = client.get_run(left["open"])
assert run.info.status == "RUNNING" and run.data.metrics["loss"] == 7.0, run.info
client.log_metric(left["open"], "loss", 6.0, step=2)
client.set_terminated(left["open"])
assert client.get_run(left["open"]).info.status == "FINISHED"
print("ok")
