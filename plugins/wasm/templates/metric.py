"""A metric for Assay: the share of predictions whose target is among the k largest scores."""

import functools
import json
import struct
import traceback

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import types


def explained(function):
    """Turns an exception into a problem with its traceback. Without it, an exception is only reported as `unreachable`."""

    @functools.wraps(function)
    def call(*arguments):
        try:
            return function(*arguments)
        except Err:
            raise
        except Exception as error:
            # `traceback.format_exc` would read the source file, and a plugin has no files.
            frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
            trace = "\n".join(f"{code.co_filename}, line {line}, in {code.co_name}" for code, line in frames)
            raise Err(types.Problem(f"{type(error).__name__}: {error}", None, None, trace))

    return call


class Plugin(exports.Plugin):
    def describe(self):
        schema = {"type": "object", "properties": {"k": {"type": "integer", "minimum": 1, "default": 5}}}
        return exports.plugin.About("top-k", "1.0.0", "The share of targets among the k largest scores.", json.dumps(schema))


# One instance serves one config, so that its sums are kept here.
state = {"k": 5, "count": 0, "right": 0}


class Metric(exports.Metric):
    @explained
    def open(self, config):
        state["k"] = json.loads(config or "{}").get("k", 5)
        if state["k"] < 1:
            raise Err(types.Problem("k is less than 1", "5 is usual", "/k", None))

    @explained
    def add(self, batch):
        for index, target in enumerate(batch.targets):
            scores = batch.scores[index * batch.classes : (index + 1) * batch.classes]
            state["right"] += sum(score > scores[target] for score in scores) < state["k"]
            state["count"] += 1

    def save(self):
        return struct.pack("<QQ", state["count"], state["right"])

    @explained
    def merge(self, saved):
        count, right = struct.unpack("<QQ", saved)
        state["count"] += count
        state["right"] += right

    @explained
    def values(self):
        return [types.Value("top_k", state["right"] / max(state["count"], 1))]
