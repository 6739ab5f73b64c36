"""Against PyTorch on a GPU: TEN's recurrence, attention and a training step, both sides alternately in one run.

    python tests/gpu/peers.py --program FILE [--results FOLDER] [--commit ID] [--rounds 15]
    python tests/gpu/peers.py --program FILE --device cpu --tiny    only to see that it works

Ours is the program that `run.sh` builds, as a process that does blocks of steps on request (`--serve`); PyTorch is in this
process. The formulations and the way of comparing are those of the comparison on the processor (`tests/peers`): both must
compute the same loss and the same norm of the gradient; every formulation is timed shortly, eager and compiled; those that come
near the quickest meet us in rounds of blocks in a random order. A ratio is the time of the one that is quickest then over ours,
with its 95 % bootstrap interval.

Without PyTorch, or without a CUDA device for it, it prints one line and exits.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

PEERS = Path(__file__).resolve().parent.parent / "peers"
sys.path.insert(0, str(PEERS))

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(f"peers: skipped: this Python has no PyTorch ({error})")
    raise SystemExit(0)

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

try:
    from accelerated_scan.complex import scan as accelerated_scan
except ImportError:
    accelerated_scan = None

import ten  # noqa: E402
from compare import OPTIMIZER, Side, agree, median_interval, meet, near  # noqa: E402

# The sizes of real runs, and of runs that only show that everything works.
SIZES = {
    False: {
        "recurrence": {"batch": 32, "length": 2048, "states": 1024, "chunk": 64},
        "attention": {"batch": 8, "heads": 16, "length": 2048, "width": 64},
        "training": {"dim": 1024, "states": 128, "layers": 8, "cells": 2, "chunk": 64},
        "task": {"vocabulary": 50_000, "batch": 16, "length": 512, "seed": 1},
    },
    True: {
        "recurrence": {"batch": 2, "length": 16, "states": 4, "chunk": 8},
        "attention": {"batch": 1, "heads": 2, "length": 16, "width": 8},
        "training": {"dim": 8, "states": 4, "layers": 1, "cells": 2, "chunk": 8},
        "task": {"vocabulary": 11, "batch": 2, "length": 16, "seed": 1},
    },
}
# The tolerance of the gradient norm, for which bf16 rounds intermediate terms.
TOLERANCES = {"f32": 1e-4, "bf16": 2e-2}


def numbers(dims, scale, device):
    """As `measure.rs` makes them: without a pattern, at most `scale` in magnitude."""
    count = torch.Size(dims).numel()
    values = (torch.arange(count) * 7919 % 2003).float() / 1001.5 - 1.0
    return (values * scale).reshape(dims).to(device)


class Here(Side):
    """PyTorch, in this process: answers the requests that our process answers."""

    def __init__(self, name, work, device):
        self.name, self.work, self.device = name, work, device

    def ask(self, **request):
        return self.work.ask(request, self.synchronize)

    def synchronize(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def close(self):
        self.work = None
        if self.device == "cuda":
            torch.cuda.empty_cache()


class Loss:
    """A value of some leaves and the loss sum(value * weight); the work is the value, or the loss with its gradient."""

    def __init__(self, value, leaves, weight, backward, how):
        def loss(*leaves):
            return (value(*leaves).float() * weight).sum()

        compiled = (lambda f: f) if how is None else partial(torch.compile, dynamic=False, mode=how)
        self.leaves = [leaf.requires_grad_() for leaf in leaves]
        self.value, self.loss = compiled(value), compiled(loss)
        self.backward = backward

    def differentiate(self):
        for leaf in self.leaves:
            leaf.grad = None
        loss = self.loss(*self.leaves)
        loss.backward()
        return loss

    def ask(self, request, synchronize):
        if request["do"] == "check":
            loss = self.differentiate()
            squares = [leaf.grad.double().square().sum() for leaf in self.leaves]
            return {"loss": float(loss.detach()), "gradient_norm": float(torch.stack(squares).sum().sqrt())}
        synchronize()
        began = time.perf_counter()
        for _ in range(request["count"]):
            if self.backward:
                self.differentiate()
            else:
                with torch.no_grad():
                    self.value(*self.leaves)
        synchronize()
        return {"seconds": time.perf_counter() - began}


def recurrence(size, form, device, how):
    dims = (size["batch"], size["length"], size["states"])
    chunk = size["chunk"] or size["length"]
    net = ten.Ten({}, {"cells": 1, "chunk": chunk}, form).to(device)
    weight = numbers(dims, torch.Size(dims).numel() ** -0.5, device)

    def value(beta, nu, phase):
        re, im = net.states(beta, nu - 2.0, phase)
        return re + im

    leaves = [numbers(dims, 1.0, device), numbers(dims[2:], 1.0, device), numbers(dims[2:], 1.0, device)]
    return Loss(value, leaves, weight, True, how)


def accelerated(size, device, how):
    """The same recurrence by the library accelerated-scan, in its own layout [B, K, T], whose decays are one for each step."""
    batch, length, states = size["batch"], size["length"], size["states"]
    dims = (batch, length, states)
    in_rows = lambda x: x.transpose(1, 2).contiguous()  # noqa: E731
    weight = in_rows(numbers(dims, torch.Size(dims).numel() ** -0.5, device))

    def value(beta, nu, phase):
        decay = torch.polar(torch.exp(-torch.exp(nu - 2.0)), phase)
        states = accelerated_scan(decay[None, :, None].expand(beta.shape).contiguous(), beta)
        return states.real + states.imag

    leaves = [in_rows(numbers(dims, 1.0, device)), numbers(dims[2:], 1.0, device), numbers(dims[2:], 1.0, device)]
    return Loss(value, leaves, weight, True, how)


SDPA = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cuDNN": SDPBackend.CUDNN_ATTENTION,
    "memory-efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def attention(size, precision, backward, device, form, how):
    dims = (size["batch"], size["heads"], size["length"], size["width"])
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    weight = numbers(dims, torch.Size(dims).numel() ** -0.5, device)

    def value(q, k, v):
        if form == "default":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        with sdpa_kernel(SDPA[form]):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    leaves = [numbers(dims, scale, device).to(dtype) for scale in (0.5, 0.6, 0.7)]
    return Loss(value, leaves, weight, backward, how)


class Steps:
    """Training steps, as the comparison on the processor does them."""

    def __init__(self, setup):
        from worker import Training

        self.training = Training(setup)

    def ask(self, request, _):
        return {"check": self.training.check, "steps": self.training.steps}[request["do"]](request)


def ways(device):
    """How PyTorch can compute: eager, compiled, and on a GPU compiled and captured as a graph."""
    compiled = {"eager": None, "compiled": "default"}
    return compiled | ({"compiled, captured": "reduce-overhead"} if device == "cuda" else {})


def candidates(forms, make, options):
    """PyTorch's formulations and ways to compute, as far as they are asked for."""
    for form in forms:
        for way, how in ways(options.device).items():
            name = f"{form}, {way}"
            if not options.forms or name.startswith(tuple(options.forms)):
                yield name, partial(make, form, how)


def contenders(ours, options, device, tolerance):
    """PyTorch's formulations that come near the quickest. One that does not run here is named and left out."""
    sides, times = [], {}
    for name, make in options:
        try:
            side = Here(name, make(), device)
            agree(ours, side, tolerance)
            count = side.warm()
            times[name] = min(side.seconds(count) for _ in range(5))
        except SystemExit:
            raise
        except Exception as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            print(f"    {name} does not run here: {lines[0]}", file=sys.stderr)
            continue
        print(f"    {name}: {1e3 * times[name]:.3f} ms", file=sys.stderr)
        sides = near([*sides, side], times)
    return sides, times


def compare(what, ours, options, rounds, device, tolerance):
    """A row: our time and PyTorch's, and the ratio of the two."""
    print(what, file=sys.stderr)
    theirs, times = contenders(ours, options, device, tolerance)
    if not theirs:
        return None
    form, mine, other = meet(ours, theirs, rounds)
    # Compiled code of this row would count against the recompilation limit of the next one.
    torch._dynamo.reset()
    return {
        "what": what,
        "rounds": rounds,
        "ours_seconds": statistics.median(mine),
        "peer_seconds": statistics.median(other),
        "peer_form": form,
        "ratio": median_interval([b / a for a, b in zip(mine, other)]),
        "peer_forms": times,
    }


def ours_of(program, setup):
    return Side("assay", [program, "--serve"], setup, 1)


def recurrences(options, sizes):
    size = sizes["recurrence"]
    what = "TEN's recurrence, forward and backward [{batch}, {length}, {states}]".format(**size)
    ours = ours_of(options.program, {"work": "recurrence"} | size)
    forms = candidates(["toeplitz", "fft"], lambda form, how: recurrence(size, form, options.device, how), options)
    yield compare(f"{what}, chunk {size['chunk']}", ours, forms, options.rounds, options.device, TOLERANCES["f32"])
    whole = size | {"chunk": None}
    if accelerated_scan is None:
        print("peers: accelerated-scan is not installed: the recurrence is not compared with it", file=sys.stderr)
        return
    ours = ours_of(options.program, {"work": "recurrence"} | whole)
    forms = [("accelerated-scan", lambda: accelerated(whole, options.device, None))]
    yield compare(f"{what}, not truncated", ours, forms, options.rounds, options.device, TOLERANCES["f32"])


def attentions(options, sizes):
    size = sizes["attention"]
    forms = ["default", *(SDPA if options.device == "cuda" else [])]
    for precision in options.precision:
        for backward in (False, True):
            ours = ours_of(options.program, {"work": "attention", "precision": precision, "backward": backward} | size)
            make = partial(attention, size, precision, backward, options.device)
            what = "attention, causal, forward{} [{batch}, {heads}, {length}, {width}], {precision}"
            what = what.format(" and backward" if backward else "", precision=precision, **size)
            options_of = candidates(forms, make, options)
            yield compare(what, ours, options_of, options.rounds, options.device, TOLERANCES[precision])


def trainings(options, sizes):
    for precision in options.precision:
        model = {"family": "ten"} | sizes["training"]
        common = {"model": model, "optimizer": OPTIMIZER, "precision": precision, "threads": 1} | sizes["task"]
        ours = ours_of(options.program, {"work": "training", "setup": common})
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "model.safetensors")
            tokens = ours.ask(do="export", path=path)["tokens"]
            setup = common | {"family": "ten", "parameters": path, "tokens": tokens, "device": options.device}
            make = lambda form, how: Steps(setup | {"form": form, "compile": how})  # noqa: E731
            forms = candidates(["toeplitz", "fft"], make, options)
            what = "a training step of TEN, D {dim}, K {states}, {layers} layers".format(**sizes["training"])
            what = f"{what}, {sizes['task']['batch'] * sizes['task']['length']} tokens, {precision}"
            yield compare(what, ours, forms, options.rounds, options.device, TOLERANCES[precision])


def table(rows):
    lines = ["| what | ours, ms | PyTorch, ms | its form | PyTorch's time over ours |", "|---|---|---|---|---|"]
    for row in rows:
        ours, theirs, ratio = 1e3 * row["ours_seconds"], 1e3 * row["peer_seconds"], row["ratio"]
        interval = f"{ratio[0]:.2f} [{ratio[1]:.2f}, {ratio[2]:.2f}]"
        lines.append(f"| {row['what']} | {ours:.3f} | {theirs:.3f} | {row['peer_form']} | {interval} |")
    return "\n".join(lines)


def keep(rows, options, machine):
    folder = Path(options.results)
    folder.mkdir(parents=True, exist_ok=True)
    name = machine["device"].replace(" ", "-").replace("/", "-").lower()
    path = folder / f"peers-{name}-{options.commit}.json"
    path.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")


def driver():
    """NVIDIA's kernel module, as it names itself; `None` if absent."""
    try:
        return Path("/proc/driver/nvidia/version").read_text().splitlines()[0].strip()
    except (OSError, IndexError):
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the program that run.sh builds")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="where PyTorch computes")
    parser.add_argument("--tiny", action="store_true", help="sizes that say nothing")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=["recurrence", "attention", "training"], nargs="+")
    parser.add_argument("--precision", choices=["f32", "bf16"], nargs="+", default=["f32", "bf16"])
    parser.add_argument("--forms", nargs="+", help="only PyTorch's formulations whose names begin so: `toeplitz, compiled`")
    parser.add_argument("--results", help="a folder to keep the results in")
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print(f"peers: skipped: PyTorch {torch.__version__} finds no CUDA device")
        return
    name = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    machine = {"device": name, "driver": driver(), "torch": torch.__version__, "cuda": torch.version.cuda}
    machine["commit"] = options.commit
    kinds = {"recurrence": recurrences, "attention": attentions, "training": trainings}
    rows = []
    for kind, run in kinds.items():
        if not options.only or kind in options.only:
            rows += [row for row in run(options, SIZES[options.tiny]) if row is not None]
    if options.results:
        keep(rows, options, machine)
    print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, on {name}; commit {options.commit}")
    print(table(rows))


if __name__ == "__main__":
    main()
