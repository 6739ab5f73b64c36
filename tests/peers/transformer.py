"""The transformer in PyTorch: learned positions, `scaled_dot_product_attention`."""

import torch.nn.functional as F
from torch import nn

from blocks import Net

FORMS = ["sdpa"]


class Transformer(Net):
    def embed(self, tokens):
        return super().embed(tokens) + self.p("positions.table")[: tokens.shape[1]]

    def mix(self, layer, x):
        name = f"blocks.{layer}.attention"
        heads = self.model["heads"]
        q, k, v = self.linear(f"{name}.qkv", x).unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.linear(f"{name}.out", mixed.transpose(1, 2).flatten(2))


def build(arrays, model, form) -> nn.Module:
    return Transformer(arrays, model)
