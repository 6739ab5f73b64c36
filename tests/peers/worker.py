"""The peer's side of a comparison: a process that does training steps on request.

The first line of standard input is the setup in JSON, every further line a request; each is answered by a line.
"""

import json
import sys
import time

# Before any threads are started: they inherit the mode from the thread that starts them.
import torch

torch.set_flush_denormal(True)

from safetensors.torch import load_file  # noqa: E402

import pulse  # noqa: E402
import ten  # noqa: E402
import transformer  # noqa: E402

FAMILIES = {"ten": ten, "pulse": pulse, "transformer": transformer}


class Training:
    """One model, its optimizer, and the batch that it is trained on."""

    def __init__(self, setup):
        torch.set_num_threads(setup["threads"])
        self.device, self.narrow = setup.get("device", "cpu"), setup.get("precision") == "bf16"
        model = FAMILIES[setup["family"]].build(load_file(setup["parameters"]), setup["model"], setup["form"])
        self.model = model.to(self.device)
        # `compile` is a boolean, or the mode.
        how = setup["compile"] if isinstance(setup["compile"], str) else None
        self.call = torch.compile(self.model, dynamic=False, mode=how) if setup["compile"] else self.model
        optimizer = setup["optimizer"]
        self.clip_norm = optimizer["clip_norm"]
        groups = self.model.groups(optimizer["weight_decay"])
        self.optimizer = torch.optim.AdamW(groups, lr=optimizer["lr"], betas=tuple(optimizer["betas"]), fused=True)
        self.tokens = torch.tensor(setup["tokens"], dtype=torch.long, device=self.device)
        # The target is the next token; the last token has none.
        self.targets = torch.full_like(self.tokens, -100)
        self.targets[:, :-1] = self.tokens[:, 1:]

    def backward(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.narrow):
            loss = self.call(self.tokens, self.targets)
        loss.backward()
        return loss

    def synchronize(self):
        if self.device != "cpu":
            torch.cuda.synchronize()

    def check(self, request):
        loss = self.backward()
        return {"loss": float(loss.detach()), "gradient_norm": self.model.gradient_norm()}

    def steps(self, request):
        self.synchronize()
        began = time.perf_counter()
        for _ in range(request["count"]):
            loss = self.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip_norm, foreach=True)
            self.optimizer.step()
            last = float(loss.detach())
        self.synchronize()
        return {"seconds": time.perf_counter() - began, "loss": last}


def main():
    training = Training(json.loads(sys.stdin.readline()))
    for line in sys.stdin:
        request = json.loads(line)
        answer = {"check": training.check, "steps": training.steps}[request["do"]](request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
