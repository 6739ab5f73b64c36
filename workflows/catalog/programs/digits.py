# Fits a classifier of scikit-learn to a share of its handwritten digits, and scores it on digits that it has not seen.
import json
import os
import pathlib
import time

from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

params = json.load(open(os.environ["ASSAY_PARAMS"]))
seed, threads = int(os.environ["ASSAY_SEED"]), int(os.environ["ASSAY_THREADS"])
model = {
    "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
    "forest": lambda: RandomForestClassifier(n_estimators=100, random_state=seed, n_jobs=threads),
    "neighbours": lambda: KNeighborsClassifier(n_neighbors=5, n_jobs=threads),
}[params["model"]]()

data, target = load_digits(return_X_y=True)
data, unseen, target, unseen_target = train_test_split(data, target, test_size=0.25, random_state=seed, stratify=target)
count = int(len(data) * params["share"])
data, target = data[:count], target[:count]


def report(**metrics):
    with open(os.environ["ASSAY_METRICS"], "a") as file:
        print(json.dumps({name.replace("__", "/"): value for name, value in metrics.items()}), file=file, flush=True)


scores = cross_val_score(model, data, target, cv=params["folds"])
for fold, score in enumerate(scores, 1):
    report(step=fold, fold__accuracy=100 * score)
began = time.perf_counter()
model.fit(data, target)
seconds = time.perf_counter() - began
accuracy = 100 * model.score(unseen, unseen_target)
report(accuracy=accuracy, fit__seconds=seconds)
result = {"accuracy": accuracy, "examples": count, "folds": [100 * score for score in scores]}
pathlib.Path(os.environ["ASSAY_OUTPUTS"], "report.json").write_text(json.dumps(result))
