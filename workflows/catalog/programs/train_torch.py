# Trains a network of two hidden layers on two interleaved spirals, and resumes from the state that an earlier attempt saved.
import json
import math
import os
import pathlib

import torch

params = json.load(open(os.environ["ASSAY_PARAMS"]))
torch.manual_seed(int(os.environ["ASSAY_SEED"]))
torch.set_num_threads(int(os.environ["ASSAY_THREADS"]))
state = pathlib.Path(os.environ["ASSAY_RESUME"]) / "state.pt"


def spirals(count, generator):
    angle = 3 * math.pi * torch.rand(count, generator=generator).sqrt()
    side = torch.randint(0, 2, (count,), generator=generator)
    radius = angle + 0.3 * torch.randn(count, generator=generator)
    turned = angle + math.pi * side
    return torch.stack([radius * turned.cos(), radius * turned.sin()], 1) / 10, side


generator = torch.Generator().manual_seed(1)
(data, target), (unseen, unseen_target) = spirals(2000, generator), spirals(500, generator)
width = params["width"]
model = torch.nn.Sequential(
    torch.nn.Linear(2, width), torch.nn.Tanh(), torch.nn.Linear(width, width), torch.nn.Tanh(), torch.nn.Linear(width, 2)
)
optimizer = torch.optim.Adam(model.parameters(), lr=params["lr"])
first = 1
if state.exists():
    saved = torch.load(state, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["epoch"] + 1

with open(os.environ["ASSAY_METRICS"], "a") as metrics:
    for epoch in range(first, params["epochs"] + 1):
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(100):
            loss = torch.nn.functional.cross_entropy(model(data[batch]), target[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            logits = model(unseen)
            valid = torch.nn.functional.cross_entropy(logits, unseen_target).item()
            accuracy = 100 * (logits.argmax(1) == unseen_target).float().mean().item()
        record = {"step": epoch, "train/loss": loss.item(), "valid/loss": valid, "valid/accuracy": accuracy}
        print(json.dumps(record), file=metrics, flush=True)
        part = state.with_suffix(".part")
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, part)
        part.rename(state)
torch.save(model.state_dict(), pathlib.Path(os.environ["ASSAY_OUTPUTS"], "model.pt"))
