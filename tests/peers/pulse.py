"""PULSE in PyTorch: dense routing, GRU gates, mixing slots, local attention with rotary positions in each chunk.

What does not depend on the slots is computed for all chunks at once; what does runs chunk after chunk, and the last
chunk's update, which nothing reads, is left out. Queries, values and the way out are matrices of tokens (`chunks`), or
applied on the side of the slots (`folded`): (W_q x) . k = x . (W_q^T k), sum p (W_v x) = W_v sum p x.
"""

import torch
import torch.nn.functional as F
from torch import nn

from blocks import NORM_EPSILON, Net

FORMS = ["chunks", "folded"]
MASS_EPSILON = 1e-6
ROPE_BASE = 10_000.0


class Pulse(Net):
    def __init__(self, arrays, model, folded):
        super().__init__(arrays, model)
        self.slots = self.slots_folded if folded else self.slots_of_projected
        self.width = model.get("slot_width", model["dim"])
        self.mixing_heads = model.get("mixing_heads", 4)
        half = model["dim"] // model["heads"] // 2
        rates = ROPE_BASE ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(model["chunk"], dtype=torch.float64)[:, None] * rates.repeat(2)
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def mix(self, layer, x):
        return self.slots(f"blocks.{layer}.slots", x) + self.local(f"blocks.{layer}.local", x)

    def weight(self, name, x):
        return F.linear(x, self.p(f"{name}.weight"))

    def slots_folded(self, name, x):
        width, chunk = self.width, self.model["chunk"]
        to_query, to_value = self.p(f"{name}.in.weight").split(width, 0)
        to_query = to_query.t().contiguous() * width**-0.5
        state = self.p(f"{name}.initial").expand(x.shape[0], -1, -1)
        reads, tokens = [], x.split(chunk, 1)
        for n, token in enumerate(tokens):
            keys, contents = self.weight(f"{name}.sides", state).split(width, 2)
            weights = torch.bmm(token, F.linear(keys, to_query).transpose(1, 2)).softmax(2)
            reads.append(torch.bmm(weights, self.weight(f"{name}.out", contents)))
            if n + 1 < len(tokens):
                mass = weights.sum(1)[:, :, None] + MASS_EPSILON
                written = F.linear(torch.bmm(weights.transpose(1, 2), token), to_value)
                state = self.update(name, state, written / mass)
        return torch.cat(reads, 1)

    def slots_of_projected(self, name, x):
        width, chunk = self.width, self.model["chunk"]
        queries, values = self.weight(f"{name}.in", x).split(width, 2)
        queries, values = (queries * width**-0.5).split(chunk, 1), values.split(chunk, 1)
        state = self.p(f"{name}.initial").expand(x.shape[0], -1, -1)
        reads = []
        for n, (query, value) in enumerate(zip(queries, values)):
            keys, contents = self.weight(f"{name}.sides", state).split(width, 2)
            weights = torch.bmm(query, keys.transpose(1, 2)).softmax(2)
            reads.append(torch.bmm(weights, contents))
            if n + 1 < len(queries):
                mass = weights.sum(1)[:, :, None] + MASS_EPSILON
                state = self.update(name, state, torch.bmm(weights.transpose(1, 2), value) / mass)
        return self.weight(f"{name}.out", torch.cat(reads, 1))

    def update(self, name, state, written):
        gates = self.weight(f"{name}.gates", torch.cat([state, written], 2)).sigmoid()
        update, reset = gates.split(self.width, 2)
        candidate = self.weight(f"{name}.candidate", torch.cat([reset * state, written], 2)).tanh()
        state = torch.lerp(state, candidate, update)
        q, k, v = self.heads(self.linear(f"{name}.mix.qkv", state), self.mixing_heads)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        state = state + self.linear(f"{name}.mix.out", mixed)
        gain, bias = self.p(f"{name}.mix.norm.gain"), self.p(f"{name}.mix.norm.bias")
        return F.layer_norm(state, (self.width,), gain, bias, NORM_EPSILON)

    def heads(self, x, heads):
        """[B, T, 3 D] to three of [B, H, T, D / H]."""
        return x.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)

    def local(self, name, x):
        qkv = self.linear(f"{name}.qkv", x).unflatten(1, (-1, self.model["chunk"])).flatten(0, 1)
        q, k, v = self.heads(qkv, self.model["heads"])
        mixed = F.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True)
        return self.linear(f"{name}.out", mixed.transpose(1, 2).flatten(2).view(x.shape))

    def turned(self, x):
        low, high = x.chunk(2, 3)
        return x * self.cos + torch.cat([-high, low], 3) * self.sin


def build(arrays, model, form) -> nn.Module:
    return Pulse(arrays, model, form == "folded")
