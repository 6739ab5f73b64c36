"""A step for Assay: counts the words of its input `data` and writes them to its output `counts`, the most frequent first."""

import collections
import functools
import heapq  # noqa: F401  `most_common` imports it, and a plugin cannot import during a call: modules are files.
import json
import traceback

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import artifacts, types

# How much is read at once.
PART = 1 << 20


def explained(function):
    """Turns an exception into a problem with its traceback. Without it, an exception is only reported as `unreachable`."""

    @functools.wraps(function)
    def call(*arguments):
        try:
            return function(*arguments)
        except Err as error:
            if isinstance(error.value, str):
                raise Err(types.Problem(error.value, None, None, None))
            raise
        except Exception as error:
            # `traceback.format_exc` would read the source file, and a plugin has no files.
            frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
            trace = "\n".join(f"{code.co_filename}, line {line}, in {code.co_name}" for code, line in frames)
            raise Err(types.Problem(f"{type(error).__name__}: {error}", None, None, trace))

    return call


class Plugin(exports.Plugin):
    def describe(self):
        schema = {"type": "object", "properties": {"most": {"type": "integer", "minimum": 1, "default": 100}}}
        return exports.plugin.About("words", "1.0.0", "Counts the words of a text.", json.dumps(schema))


class Step(exports.Step):
    @explained
    def run(self, config, replicate):
        most = json.loads(config or "{}").get("most", 100)
        size = artifacts.size("data")
        text = b"".join(artifacts.read("data", at, PART) for at in range(0, size, PART))
        counts = collections.Counter(text.decode("utf-8", "replace").split())
        lines = [f"{word}\t{count}\n" for word, count in counts.most_common(most)]
        artifacts.write("counts", "".join(lines).encode())
        artifacts.metrics(0, [types.Value("distinct", float(len(counts)))])
        return json.dumps({"total": sum(counts.values())})
