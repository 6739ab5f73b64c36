# Measures how long a command takes that reads standard input and writes standard output: the median over rounds, after one that does not
# count. Each process is one replicate.
import json
import os
import random
import shlex
import statistics
import subprocess
import time

params = json.load(open(os.environ["ASSAY_PARAMS"]))
words = [bytes(random.Random(n).randbytes(1 + n % 9).hex(), "ascii") for n in range(500)]
source = random.Random(7)
data = b" ".join(source.choices(words, k=200 * params["kilobytes"]))[: 1000 * params["kilobytes"]]
command = shlex.split(params["command"])
times = []
with open(os.environ["ASSAY_METRICS"], "a") as metrics:
    for round in range(params["rounds"] + 1):
        began = time.perf_counter()
        done = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True)
        seconds = time.perf_counter() - began
        if round > 0:
            times.append(seconds)
            print(json.dumps({"step": round, "round/seconds": seconds}), file=metrics, flush=True)
    result = {"seconds": statistics.median(times), "size": 100 * len(done.stdout) / len(data)}
    print(json.dumps(result), file=metrics, flush=True)
