"""Autologging of scikit-learn: sklearn_autolog.py URI. Prints the id of the run."""

import logging
import sys

import mlflow

logging.getLogger("mlflow").setLevel(logging.ERROR)
mlflow.set_tracking_uri(sys.argv[1])
mlflow.sklearn.autolog(log_models=False, log_datasets=False)
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

data, target = load_iris(return_X_y=True)
with mlflow.start_run(run_name="iris") as run:
    LogisticRegression(C=0.5, max_iter=300).fit(data, target)
print(run.info.run_id)
