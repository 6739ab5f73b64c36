"""Tasks per second of Assay and HyperQueue, in turns on the same machine.

    python3 -m venv ~/.cache/assay-hyperqueue
    ~/.cache/assay-hyperqueue/bin/pip install hyperqueue==0.27
    cargo build --release --workspace --bin assay
    ~/.cache/assay-hyperqueue/bin/python tests/peers/hyperqueue_rate.py --rounds 5 --tasks 500

Each side is a server with one worker of two slots, all on this machine. A round runs so many programs `/bin/true` on each side, in
random order; the time is from the submission to the end of the last task. Assay also runs the built-in step `prepare` with three
short sequences, in a process of its own like every step. The ratio of a round is Assay's rate over that of HyperQueue; the report has
the median over the rounds and its 95 % bootstrap interval.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

ROOT = pathlib.Path(__file__).resolve().parents[2]
SLOTS = 2

PROGRAMS = """name: programs
jobs:
  work:
    strategy: {{matrix: {{part: {parts}}}}}
    uses: command
    with: {{run: [/bin/true], params: {{part: "${{{{ matrix.part }}}}", round: {round}}}}}
"""

STEPS = """name: steps
jobs:
  work:
    strategy: {{matrix: {{part: {parts}}}}}
    uses: prepare
    with: {{dataset: copy, train: 1, valid: 1, test: 1, seed: "${{{{ matrix.part + {round} * 100000 }}}}"}}
"""


class Assay:
    """A server of Assay with one worker."""

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        self.environment = {**os.environ, "ASSAY_MACHINE": str(folder / "machine"), "NO_COLOR": "1"}
        home = ["--home", str(folder / "store")]
        self.server = subprocess.Popen([binary, "server", "--listen", "127.0.0.1:0", *home], env=self.environment,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        line = self.server.stderr.readline()
        self.url = "http" + line.split(" on http", 1)[1].split(",")[0]
        worker = [binary, "worker", "--server", self.url, "--jobs", str(SLOTS), "--cpus", str(SLOTS),
                  "--cache", str(folder / "worker")]
        self.worker = subprocess.Popen(worker, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not self.ask("workers")["workers"]:
            time.sleep(0.05)

    def ask(self, *arguments):
        command = [self.binary, *arguments, "--json", "--server", self.url]
        return json.loads(subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True).stdout)

    def seconds(self, template, tasks, number):
        """The time of a run with so many tasks."""
        file = self.folder / "flow.yaml"
        file.write_text(template.format(parts=list(range(tasks)), round=number))
        start = time.monotonic()
        # The command fails if a task does.
        self.ask("submit", str(file), "--follow", "--force")
        return time.monotonic() - start

    def stop(self):
        for process in (self.worker, self.server):
            process.kill()
            process.wait()


def hyperqueue_seconds(client, tasks):
    """The time of a job with so many programs."""
    job = Job()
    for _ in range(tasks):
        job.program(["/bin/true"], stdout=None, stderr=None)
    start = time.monotonic()
    submitted = client.submit(job)
    client.wait_for_jobs([submitted])
    return time.monotonic() - start


def interval(values):
    """The median, and its 95 % bootstrap interval."""
    random.seed(1)
    medians = sorted(statistics.median(random.choices(values, k=len(values))) for _ in range(2000))
    return statistics.median(values), medians[50], medians[-51]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=500)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--assay", default=str(target / "release" / "assay"), help="the binary")
    arguments = parser.parse_args()
    rates = {"hyperqueue /bin/true": [], "assay /bin/true": [], "assay prepare": []}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        assay = Assay(arguments.assay, folder)
        try:
            with LocalCluster(str(folder / "hq"), worker_config=WorkerConfig(cores=SLOTS)) as cluster:
                client = cluster.client()
                sides = {
                    "hyperqueue /bin/true": lambda number: hyperqueue_seconds(client, arguments.tasks),
                    "assay /bin/true": lambda number: assay.seconds(PROGRAMS, arguments.tasks, number),
                    "assay prepare": lambda number: assay.seconds(STEPS, arguments.tasks, number),
                }
                # The first round warms up and does not count.
                for number in range(arguments.rounds + 1):
                    for side in random.sample(sorted(sides), len(sides)):
                        rate = arguments.tasks / sides[side](number)
                        if number > 0:
                            rates[side].append(rate)
                            print(f"round {number}: {side:22} {rate:8.1f} tasks/s", flush=True)
        finally:
            assay.stop()
    base = rates["hyperqueue /bin/true"]
    for side, values in rates.items():
        middle, low, high = interval([value / other for value, other in zip(values, base)])
        print(f"{side:22} {statistics.median(values):8.1f} tasks/s   ratio {middle:.2f} [{low:.2f}, {high:.2f}]")


if __name__ == "__main__":
    main()
