"""Parameters, metrics and files of a script that runs as a step of Assay (`uses: command`).

The functions also work in a script that runs outside of a workflow, as each of them describes.
"""

import json
import math
import os
import pathlib

__all__ = [
    "StepError",
    "device",
    "in_step",
    "input",
    "log",
    "output",
    "params",
    "replicate",
    "resume",
    "seed",
    "threads",
]

__version__ = "0.1.0"

#: The folder for outputs and checkpoints of a script that runs outside of a workflow.
_BY_HAND = "assay-run"


class StepError(Exception):
    """An input is missing, a path is not allowed, or a reported value is not a metric."""


def in_step():
    """Whether the script runs as a step of a workflow."""
    return "ASSAY_OUTPUTS" in os.environ


def params(**defaults):
    """The values of the step's `params:` as a dict. `defaults` are used for values that the step does not set.

    Outside of a workflow: the defaults.
    """
    values = dict(defaults)
    path = os.environ.get("ASSAY_PARAMS")
    if path:
        with open(path, encoding="utf-8") as file:
            values.update(json.load(file))
    return values


def log(step=None, values=None, /, **metrics):
    """Reports numbers: `log(10, loss=0.5)`, or `log(10, {"train/loss": 0.5})`.

    `step` is a whole number from 0, the x axis of the metric's curve. Without it the numbers are final values. A value is anything that
    `float` accepts, such as a NumPy scalar or a tensor with one element. A number that is not finite ends the step.

    Outside of a workflow: prints `step=10 loss=0.5`.

    Raises `StepError` if a value is not a number, or the step is not a whole number.
    """
    if isinstance(step, dict) and values is None:
        step, values = None, step
    numbers = {name: _number(name, value) for name, value in {**(values or {}), **metrics}.items()}
    if "step" in numbers:
        raise StepError("`step` cannot be the name of a metric: give the step as the first argument")
    record = numbers if step is None else {"step": _whole_number(step), **numbers}
    path = os.environ.get("ASSAY_METRICS")
    if path is None:
        print(" ".join(f"{name}={value}" for name, value in record.items()), flush=True)
        return
    # One write of a whole line: threads and processes that append at the same time do not mix their lines.
    with open(path, "ab", buffering=0) as file:
        file.write(json.dumps(record).encode() + b"\n")


def _number(name, value):
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError) as error:
        raise StepError(f"the metric `{name}` is {value!r}, which is not a number") from error


def _whole_number(step):
    try:
        number = float(step)
    except (OverflowError, TypeError, ValueError) as error:
        raise StepError(f"the step is {step!r}, which is not a number") from error
    if not math.isfinite(number) or number < 0 or number != int(number):
        raise StepError(f"the step is {step!r}, which is not a whole number from 0")
    return int(step) if isinstance(step, int) else int(number)


def input(name):  # noqa: A001 - the word of the workflow file
    """The path of an entry of the step's `inputs:`. The file is read-only.

    Raises `StepError` if the step has no such input.
    """
    folder = os.environ.get("ASSAY_INPUTS")
    if folder is None:
        raise StepError(f"there is no input `{name}`: the script does not run as a step of a workflow")
    path = pathlib.Path(folder, name)
    if not path.exists():
        known = ", ".join(sorted(entry.name for entry in pathlib.Path(folder).iterdir())) or "none"
        raise StepError(f"there is no input `{name}`; the step has: {known}")
    return path


def output(name):
    """The path at which to write a file that the step lists under `outputs:`, as in `outputs: {model: model}`.

    Folders in `name` are created: `output("plots/loss.png")`. Outside of a workflow: a path below `assay-run`.

    Raises `StepError` if the path leaves the folder of outputs.
    """
    folder = pathlib.Path(os.environ.get("ASSAY_OUTPUTS") or pathlib.Path(_BY_HAND, "outputs"))
    relative = pathlib.PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts or not relative.parts:
        raise StepError(f"`{name}` is not a path inside of the folder of outputs")
    path = folder / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def resume():
    """The folder for checkpoints. All attempts at the same work share it, so that an attempt finds the files of earlier ones.

    Write a file under another name and rename it: an attempt that is killed then leaves the old file or the new one, not a part.
    Outside of a workflow: a folder below `assay-run`.
    """
    folder = pathlib.Path(os.environ.get("ASSAY_RESUME") or pathlib.Path(_BY_HAND, "resume"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def seed():
    """A seed below 2^31 that depends only on the replicate. Outside of a workflow: 0."""
    return _integer("ASSAY_SEED", 0)


def replicate():
    """The number of the replicate, from 1. Outside of a workflow: 1."""
    return _integer("ASSAY_REPLICATE", 1)


def threads():
    """How many threads the step may use: `cpus` of the task. Outside of a workflow: the number of processors."""
    return _integer("ASSAY_THREADS", os.cpu_count() or 1)


def device():
    """The name of the task's backend, such as `cpu` or `cuda`. Outside of a workflow: `cpu`."""
    return os.environ.get("ASSAY_DEVICE") or "cpu"


def _integer(name, otherwise):
    text = os.environ.get(name)
    return otherwise if text is None else int(text)
