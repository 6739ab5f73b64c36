"""A searcher for Assay: random values first, then the best trial with one of its parameters changed."""

import functools
import json
import random
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
        schema = {"type": "object", "properties": {"rounds": {"type": "integer", "minimum": 1, "default": 3}}}
        about = "Changes one parameter of the best trial at a time."
        return exports.plugin.About("climb", "1.0.0", about, json.dumps(schema))


class Searcher(exports.Searcher):
    @explained
    def open(self, config, space, seed):
        rounds = json.loads(config or "{}").get("rounds", 3)
        space = json.loads(space)
        for name, values in space.items():
            if not isinstance(values, list) or not values:
                raise Err(types.Problem(f"`{name}` has no list of values", 'write {"states": [8, 16]}', None, None))
        return json.dumps({"space": space, "seed": seed, "round": 0, "rounds": rounds, "best": None}).encode()

    @explained
    def propose(self, state, results, count):
        state = json.loads(state)
        for trial in results:
            if trial.value is not None and (state["best"] is None or trial.value < state["best"][0]):
                state["best"] = [trial.value, json.loads(trial.params)]
        # The same state gives the same trials.
        draw = random.Random(f"{state['seed']} {state['round']}")
        trials = []
        for _ in range(count):
            params = {name: draw.choice(values) for name, values in state["space"].items()}
            if state["best"]:
                changed = draw.choice(sorted(params))
                params = {**state["best"][1], changed: params[changed]}
            trials.append(json.dumps(params))
        state["round"] += 1
        return exports.searcher.Proposal(json.dumps(state).encode(), trials, state["round"] >= state["rounds"])
