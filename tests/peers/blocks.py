"""What the peers' models share: parameters by our names, and the layers that all families have."""

import torch
import torch.nn.functional as F
from torch import nn

NORM_EPSILON = 1e-5


class Net(nn.Module):
    """A language model whose parameters bear the names of our checkpoints, with dots written as `__`."""

    def __init__(self, arrays, model):
        super().__init__()
        self.model = model
        for name, value in arrays.items():
            self.register_parameter(name.replace(".", "__"), nn.Parameter(value.clone()))

    def p(self, name):
        return getattr(self, name.replace(".", "__"))

    def norm(self, name, x):
        return F.layer_norm(x, (x.shape[-1],), self.p(f"{name}.gain"), self.p(f"{name}.bias"), NORM_EPSILON)

    def linear(self, name, x):
        return F.linear(x, self.p(f"{name}.weight"), self.p(f"{name}.bias"))

    def ffn(self, name, x):
        return self.linear(f"{name}.down", F.gelu(self.linear(f"{name}.up", x), approximate="tanh"))

    def embed(self, tokens):
        return F.embedding(tokens, self.p("embedding.table"))

    def mix(self, layer, x):
        """Over time: what a family is about."""
        raise NotImplementedError

    def forward(self, tokens, targets):
        """The mean cross entropy. A target of -100 is none."""
        x = self.embed(tokens)
        for layer in range(self.model["layers"]):
            x = x + self.mix(layer, self.norm(f"blocks.{layer}.norm1", x))
            x = x + self.ffn(f"blocks.{layer}.ffn", self.norm(f"blocks.{layer}.norm2", x))
        logits = self.linear("head", self.norm("norm", x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def gradient_norm(self):
        """The Euclidean norm of all gradients together, in f64."""
        squares = [p.grad.double().square().sum() for p in self.parameters() if p.grad is not None]
        return float(torch.stack(squares).sum().sqrt())

    def groups(self, decay):
        """Matrices and tables decay; biases, norms, eigenvalues and the like do not."""
        decaying = ("__weight", "__table")
        named = list(self.named_parameters())
        return [
            {"params": [p for name, p in named if name.endswith(decaying)], "weight_decay": decay},
            {"params": [p for name, p in named if not name.endswith(decaying)], "weight_decay": 0.0},
        ]
