# Trains one number, and saves its state after each step so that a later attempt resumes from it.
import json, os, pathlib, random
params = json.load(open(os.environ["ASSAY_PARAMS"]))
random.seed(int(os.environ["ASSAY_SEED"]))
state = pathlib.Path(os.environ["ASSAY_RESUME"]) / "state.json"
start, loss = json.loads(state.read_text()) if state.exists() else (0, 1.0)
with open(os.environ["ASSAY_METRICS"], "a") as metrics:
    for step in range(start, params["steps"]):
        loss *= 1 - params["lr"] * random.random()
        print(json.dumps({"step": step + 1, "loss": loss}), file=metrics, flush=True)
        part = state.with_suffix(".part")
        part.write_text(json.dumps([step + 1, loss]))
        part.rename(state)                 # a killed program leaves the old state or the new one
pathlib.Path(os.environ["ASSAY_OUTPUTS"], "model.json").write_text(json.dumps(loss))
