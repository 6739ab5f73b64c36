"""A dataset for Assay: strings of bits whose label is their parity."""

import functools
import json
import random
import traceback

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports import dataset
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
        schema = {"type": "object", "properties": {"length": {"type": "integer", "minimum": 1, "default": 16}}}
        return exports.plugin.About("parity", "1.0.0", "Strings of bits; the label is their parity.", json.dumps(schema))


# One instance serves one config.
config = {"length": 16}


class Dataset(exports.Dataset):
    @explained
    def open(self, text):
        config["length"] = json.loads(text or "{}").get("length", 16)
        if config["length"] < 1:
            raise Err(types.Problem("length is less than 1", None, "/length", None))
        return dataset.Facts(["0", "1"], 2, config["length"])

    @explained
    def batch(self, seed, split, first, count):
        tokens, offsets, labels = [], [0], []
        for index in range(first, first + count):
            # Each sequence has its own generator, so that it does not depend on the batch.
            draw = random.Random(f"{seed}/{split.value}/{index}")
            bits = [draw.randrange(2) for _ in range(draw.randint(1, config["length"]))]
            tokens += bits
            offsets.append(len(tokens))
            labels.append(sum(bits) % 2)
        return types.Sequences(tokens, offsets, labels)
