# Logs two runs with the MLflow client into the store of MLFLOW_TRACKING_URI, with everything that `assay import` reads.
import os
import pathlib
import sys

import mlflow

mlflow.set_experiment("old experiment")
for lr in [0.1, 0.3]:
    with mlflow.start_run(run_name=f"lr {lr}", description="a note"):
        mlflow.log_param("lr", lr)
        mlflow.set_tag("kind", "trial")
        for step in range(20):
            mlflow.log_metric("train/loss", lr / (step + 1), step=step)
        mlflow.log_metric("bad", float("nan"))
        mlflow.log_metric("huge", float("-inf"))
        weights = pathlib.Path(sys.argv[1], "weights.txt")
        weights.write_text(f"weights {lr}")
        mlflow.log_artifact(str(weights), artifact_path="model")
run = mlflow.start_run(run_name="deleted")
mlflow.end_run()
mlflow.delete_run(run.info.run_id)
print(mlflow.__version__, os.environ["MLFLOW_TRACKING_URI"])
