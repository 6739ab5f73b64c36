"""Training against PyTorch: both sides alternately, in one run, on the same threads.

    python tests/peers/compare.py                      all families and sizes
    python tests/peers/compare.py ten/S ten/M          some of them
    python tests/peers/compare.py --rounds 25 --json results.json

Each side is a process that does blocks of training steps on request: ours is the example `training_blocks` of the
crate `assay-steps`, theirs is worker.py. First both must compute the same loss and the same gradient norm from the
same parameters and tokens. Then every formulation of the peer, eager and compiled, is timed shortly. Those that come near
the quickest meet us, in rounds of blocks in a random order; which of them is the quickest, the rounds say. The ratio of a
round is its time over ours.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

BATCH, LENGTH, CHUNK = 8, 256, 64
OPTIMIZER = {"name": "adamw", "lr": 1e-3, "betas": [0.9, 0.999], "weight_decay": 0.01, "clip_norm": 1.0}
# Width, states, layers, cells, vocabulary; heads of the transformer.
SIZES = {
    "XS": {"dim": 128, "states": 64, "layers": 2, "cells": 1, "vocabulary": 256, "heads": 4},
    "S": {"dim": 256, "states": 64, "layers": 4, "cells": 2, "vocabulary": 256, "heads": 4},
    "M": {"dim": 384, "states": 128, "layers": 6, "cells": 2, "vocabulary": 8192, "heads": 6},
}
FORMS = {"ten": ["toeplitz", "fft", "loop", "serial"], "pulse": ["chunks", "folded"], "transformer": ["sdpa"]}
# Compiling unrolls these loops into graphs for which the compiler needs many minutes (and at XS they were slower than in eager mode).
EAGER_ONLY = {"loop", "serial"}
# Formulations with at least this fraction of the fastest one's rate in a short measurement are compared, since that has an
# error of some percent.
NEAR = 0.85
# The approximate duration of a block in seconds; it contains at least one step.
BLOCK = 0.4
# Between the blocks, the threads of the idle side go to sleep.
PAUSE = 0.03


def config(family, size):
    """The model, as a workflow file has it."""
    s = SIZES[size]
    common = {"family": family, "dim": s["dim"], "layers": s["layers"]}
    if family == "ten":
        return common | {"states": s["states"], "cells": s["cells"], "chunk": CHUNK}
    if family == "pulse":
        return common | {"states": 16, "chunk": CHUNK, "heads": s["heads"]}
    return common | {"heads": s["heads"], "attention": "flash", "positions": "learned"}


class Side:
    """A child process that answers requests."""

    def __init__(self, name, command, setup, threads):
        self.name = name
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        # Compilers print much; their output matters only if the process fails.
        self.errors = tempfile.TemporaryFile("w+")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
        self.process = subprocess.Popen(command, env=environment, text=True, **pipes)
        self.send(setup)

    def send(self, value):
        self.process.stdin.write(json.dumps(value) + "\n")
        self.process.stdin.flush()

    def ask(self, **request):
        self.send(request)
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            self.errors.seek(0)
            raise SystemExit(f"{self.name} ended with status {status}:\n{self.errors.read()}")
        return json.loads(line)

    def seconds(self, count):
        """Of one step, in a block of so many."""
        time.sleep(PAUSE)
        return self.ask(do="steps", count=count)["seconds"] / count

    def warm(self):
        """Runs until it is warm; returns the steps of a block."""
        once = min(self.seconds(1) for _ in range(3))
        return max(1, round(BLOCK / once))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def median_interval(values, seed=0, resamples=10_000):
    """The median with its 95 % percentile bootstrap interval."""
    rng = random.Random(seed)
    drawn = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(resamples))
    return statistics.median(values), drawn[int(0.025 * resamples)], drawn[int(0.975 * resamples)]


def agree(ours, theirs, tolerance=1e-4):
    """Fails unless both compute the same from the same parameters."""
    mine, other = ours.ask(do="check"), theirs.ask(do="check")
    for key in ("loss", "gradient_norm"):
        difference = abs(mine[key] - other[key]) / max(1.0, abs(mine[key]))
        if not difference < tolerance:
            raise SystemExit(f"{theirs.name}: {key} is {other[key]}, ours is {mine[key]}")


def peers(family, setup, threads, forms):
    for form in (form for form in FORMS[family] if not forms or form in forms):
        for compiled in (False, True):
            if compiled and form in EAGER_ONLY:
                continue
            name = f"{form}, {'compiled' if compiled else 'eager'}"
            command = [sys.executable, str(HERE / "worker.py")]
            yield Side(name, command, setup | {"form": form, "compile": compiled}, threads)


def contenders(ours, family, setup, threads, forms):
    """The peer's formulations that come near the quickest, and how long a step of each takes at best."""
    sides, times = [], {}
    for side in peers(family, setup, threads, forms):
        agree(ours, side)
        count = side.warm()
        times[side.name] = min(side.seconds(count) for _ in range(5))
        print(f"    {side.name}: {BATCH * LENGTH / times[side.name]:.0f} tokens/s", file=sys.stderr)
        sides = near([*sides, side], times)
    return sides, times


def near(sides, times):
    """Those that are not much slower than the quickest; the others are closed."""
    least = min(times.values())
    for side in sides:
        if times[side.name] * NEAR > least:
            side.close()
    return [side for side in sides if times[side.name] * NEAR <= least]


def meet(ours, theirs, rounds, after=lambda: None):
    """Which of the others is the quickest in so many rounds of all, our times and its; all are closed then."""
    sides = [ours, *theirs]
    counts = {side: side.warm() for side in sides}
    samples = {side: [] for side in sides}
    for _ in range(rounds):
        for side in random.sample(sides, len(sides)):
            samples[side].append(side.seconds(counts[side]))
        after()
    quickest = min(theirs, key=lambda side: statistics.median(samples[side]))
    for side in sides:
        side.close()
    return quickest.name, samples[ours], samples[quickest]


def compare(family, size, binary, rounds, threads, forms):
    model, vocabulary = config(family, size), SIZES[size]["vocabulary"]
    print(f"{family}/{size}", file=sys.stderr)
    task = {"vocabulary": vocabulary, "batch": BATCH, "length": LENGTH, "seed": 1}
    setup = {"model": model, "optimizer": OPTIMIZER, "threads": threads} | task
    ours = Side("assay", [binary], setup, threads)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.safetensors")
        tokens = ours.ask(do="export", path=path)["tokens"]
        common = setup | {"family": family, "parameters": path, "tokens": tokens}
        theirs, times = contenders(ours, family, common, threads, forms)
    peaks = []

    def peak():
        time.sleep(PAUSE)
        peaks.append(ours.ask(do="peak"))

    form, mine, other = meet(ours, theirs, rounds, peak)
    return report(family, size, form, mine, other, peaks, times)


def report(family, size, form, ours, theirs, peaks, times):
    work = BATCH * LENGTH
    floors = [peak["rate"] / peak["operations_per_token"] for peak in peaks]
    rates = [work / seconds for seconds in ours]
    ratio = median_interval([b / a for a, b in zip(ours, theirs)])
    share = median_interval([rate / floor for rate, floor in zip(rates, floors)])
    return {
        "family": family,
        "size": size,
        "rounds": len(ours),
        "ours_tokens_per_second": statistics.median(rates),
        "peer_tokens_per_second": statistics.median(work / seconds for seconds in theirs),
        "peer_form": form,
        "ratio": ratio,
        "peak_gflops": statistics.median(peak["rate"] for peak in peaks) / 1e9,
        "floor_tokens_per_second": statistics.median(floors),
        "share_of_floor": share,
        "peer_forms": {name: work / seconds for name, seconds in times.items()},
    }


def row(r):
    ratio, share = r["ratio"], r["share_of_floor"]
    return (
        f"| {r['family']} {r['size']} | {r['ours_tokens_per_second']:.0f} | {r['peer_tokens_per_second']:.0f} | "
        f"{r['peer_form']} | {ratio[0]:.2f} [{ratio[1]:.2f}, {ratio[2]:.2f}] | {r['floor_tokens_per_second']:.0f} | "
        f"{share[0]:.2f} [{share[1]:.2f}, {share[2]:.2f}] |"
    )


def build():
    """The example's path, freshly built. The selection of packages keeps features as the whole workspace has them."""
    command = ["cargo", "build", "--release", "-p", "assay", "-p", "assay-steps", "--example", "training_blocks"]
    subprocess.run(command, cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return str(target / "release" / "examples" / "training_blocks")


def check(parser, options):
    """Ends with a message where a cell or a formulation does not exist."""
    for cell in options.cells:
        family, _, size = cell.partition("/")
        if family not in FORMS or size not in SIZES:
            parser.error(f"there is no `{cell}`: it is one of {', '.join(FORMS)}, then / and one of {', '.join(SIZES)}")
        if options.forms and not set(options.forms) & set(FORMS[family]):
            parser.error(f"none of --forms is a formulation of {family}, which has {', '.join(FORMS[family])}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", default=[f"{family}/{size}" for family in FORMS for size in SIZES])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--forms", nargs="*", help="only these of the peer's formulations, such as toeplitz")
    parser.add_argument("--ours", help="the built example, instead of building it")
    parser.add_argument("--json", help="also write the results to this file")
    options = parser.parse_args()
    check(parser, options)
    binary = options.ours or build()
    results = []
    for cell in options.cells:
        results.append(compare(*cell.split("/"), binary, options.rounds, options.threads, options.forms))
        print("    " + row(results[-1]), file=sys.stderr)
    print("| model | ours, tokens/s | PyTorch, tokens/s | its form | ratio | floor, tokens/s | share of the floor |")
    print("|---|---|---|---|---|---|---|")
    for result in results:
        print(row(result))
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
