"""A curriculum for Assay: the longest admitted sequence grows in equal steps."""

import functools
import json
import traceback

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports import curriculum
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
        schema = {"type": "object", "properties": {"start": {"type": "integer"}, "every": {"type": "integer"}}}
        return exports.plugin.About("ramp", "1.0.0", "The longest sequence grows in equal steps.", json.dumps(schema))


class Curriculum(exports.Curriculum):
    @explained
    def open(self, config, seed, lengths):
        options = {"start": 16, "every": 100} | json.loads(config or "{}")
        state = {"length": max(options["start"], lengths[0]), "longest": lengths[-1], **options}
        return json.dumps(state).encode()

    @explained
    def next(self, state, step, seen):
        # All that lasts from call to call is in the state.
        options = json.loads(state)
        length = options["length"]
        options["length"] = min(length + options["start"], options["longest"])
        stage = curriculum.Stage(step + options["every"], length, "equal steps")
        return stage, json.dumps(options).encode()
