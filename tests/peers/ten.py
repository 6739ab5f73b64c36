"""TEN in PyTorch: input real, readout complex, `init: ring`, skip, truncated at every chunk.

The cells of a block are computed side by side as one of c K states. The recurrence c_t = a c_{t-1} + beta_t comes in
four forms; each gets the carries of the chunks first, by a weighted sum that no gradient passes (that is what
truncation means), so that all chunks are independent:

    loop      one step after the other within the chunks, over B T / C chunks at once
    toeplitz  a matmul with the lower triangular matrices of powers of a
    fft       a convolution with the powers of a
    serial    one step after the other over the whole sequence, the states detached at the chunks' ends
"""

import torch
import torch.nn.functional as F
from torch import nn

from blocks import Net

FORMS = ["toeplitz", "fft", "loop", "serial"]


def stacked(arrays, model):
    """The cells of a block as one: their arrays along a new first axis, `blocks.L.cells.NAME`."""
    merged = {}
    for name, value in arrays.items():
        parts = name.split(".")
        if parts[0] == "blocks" and parts[2] == "cell":
            if parts[3] == "0":
                rest = ".".join(parts[4:])
                cells = [arrays[f"blocks.{parts[1]}.cell.{i}.{rest}"] for i in range(model["cells"])]
                merged[f"blocks.{parts[1]}.cells.{rest}"] = torch.stack(cells)
        else:
            merged[name] = value
    return merged


class Ten(Net):
    def __init__(self, arrays, model, form):
        super().__init__(stacked(arrays, model), model)
        self.form, self.chunk = form, model["chunk"]
        self.register_buffer("ages", torch.arange(self.chunk + 1, dtype=torch.float32), persistent=False)

    def mix(self, layer, x):
        name = f"blocks.{layer}.cells"
        cells = self.model["cells"]
        weight = self.p(f"{name}.in.weight").flatten(0, 1)
        beta = F.linear(x, weight) * self.p(f"{name}.log_gamma").flatten().exp()
        # The recurrence is computed in f32, for every type of the products.
        with torch.autocast(beta.device.type, enabled=False):
            re, im = self.states(beta.float(), self.p(f"{name}.nu").flatten(), self.p(f"{name}.phase").flatten())
        # W_out is [c, D, 2 K], real parts first: as [D, 2 c K] it is multiplied with all real parts, then with all imaginary ones.
        out = self.p(f"{name}.out.weight").unflatten(2, (2, -1)).permute(1, 2, 0, 3).flatten(1)
        y = F.linear(torch.cat([re, im], dim=2), out / cells)
        return y + x * self.p(f"{name}.skip").mean(0)

    def states(self, beta, nu, phase):
        """beta [B, T, K] to Re c and Im c, [B, T, K] each."""
        batch, length, width = beta.shape
        rate = nu.exp()
        magnitude = torch.exp(-self.ages[:, None] * rate)
        angle = self.ages[:, None] * phase
        powers = (magnitude * angle.cos(), magnitude * angle.sin())  # [C + 1, K]: a^0 to a^C
        if self.form == "serial":
            return self.serial(beta, (powers[0][1], powers[1][1]))
        chunks = beta.view(batch, length // self.chunk, self.chunk, width)
        carry = self.carries(chunks, powers)
        if self.form == "loop":
            re, im = self.loop(chunks, (powers[0][1], powers[1][1]), carry)
        else:
            local = self.toeplitz if self.form == "toeplitz" else self.fft
            re, im = local(chunks, powers)
            (pr, pi), (cr, ci) = (powers[0][1:], powers[1][1:]), (carry[0][:, :, None], carry[1][:, :, None])
            re, im = re + (pr * cr - pi * ci), im + (pr * ci + pi * cr)
        return re.reshape(batch, length, width), im.reshape(batch, length, width)

    @torch.no_grad()
    def carries(self, chunks, powers):
        """The state before each chunk, [B, N, K] as real and imaginary part."""
        weights = [p[:-1].flip(0) for p in powers]
        last = [torch.einsum("bnck,ck->bnk", chunks, weight) for weight in weights]
        whole = (powers[0][-1], powers[1][-1])
        re, im = [torch.zeros_like(last[0][:, 0])], [torch.zeros_like(last[0][:, 0])]
        for n in range(chunks.shape[1] - 1):
            r, i = re[-1], im[-1]
            re.append(whole[0] * r - whole[1] * i + last[0][:, n])
            im.append(whole[0] * i + whole[1] * r + last[1][:, n])
        return torch.stack(re, 1), torch.stack(im, 1)

    def toeplitz(self, chunks, powers):
        batch, count, length, width = chunks.shape
        # Row t of the matrix contains the powers in descending order up to its diagonal: one row, shifted by one per row.
        row = torch.cat([torch.stack([p[:-1] for p in powers]), powers[0].new_zeros(2, length, width)], 1)
        row = row.permute(0, 2, 1).flip(2).roll(1, 2)  # a^0, zeros, a^(C-1) .. a^1
        skewed = row[:, :, None].expand(-1, -1, length, -1).flatten(2)[:, :, : length * (2 * length - 1)]
        matrix = skewed.unflatten(2, (length, 2 * length - 1))[:, :, :, :length]  # [2, K, t, s]
        matrix = matrix.permute(1, 0, 2, 3).flatten(1, 2)  # [K, 2 C, C]
        columns = chunks.permute(3, 2, 0, 1).flatten(2)  # [K, C, B N]
        states = torch.bmm(matrix, columns).unflatten(1, (2, length)).unflatten(3, (batch, count))
        return states.permute(1, 3, 4, 2, 0).unbind(0)

    def fft(self, chunks, powers):
        length = chunks.shape[2]
        spectrum = torch.fft.rfft(chunks, n=2 * length, dim=2)
        kernels = [torch.fft.rfft(p[:-1], n=2 * length, dim=0) for p in powers]
        return [torch.fft.irfft(spectrum * k, n=2 * length, dim=2)[:, :, :length] for k in kernels]

    def loop(self, chunks, decay, carry):
        (ar, ai), (re, im) = decay, carry
        all_re, all_im = [], []
        for beta in chunks.unbind(2):
            re, im = ar * re - ai * im + beta, ar * im + ai * re
            all_re.append(re)
            all_im.append(im)
        return torch.stack(all_re, 2), torch.stack(all_im, 2)

    def serial(self, beta, decay):
        ar, ai = decay
        re = im = beta.new_zeros(beta.shape[0], beta.shape[2])
        all_re, all_im = [], []
        for t, step in enumerate(beta.unbind(1)):
            if t % self.chunk == 0:
                re, im = re.detach(), im.detach()
            re, im = ar * re - ai * im + step, ar * im + ai * re
            all_re.append(re)
            all_im.append(im)
        return torch.stack(all_re, 1), torch.stack(all_im, 1)


def build(arrays, model, form) -> nn.Module:
    return Ten(arrays, model, form)
