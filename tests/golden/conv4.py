"""Golden values of a small Conv-4, with max-pool ("pool") and with strided convolutions ("stride").

    python tests/golden/conv4.py

writes conv4.json, conv4.safetensors and conv4.pt beside this file; the last two are the state dict of
the max-pool network. Computed in float64 from float32 parameters and images, stored as float32.

Each variant has outputs and gradients of loss = sum(output * output_gradient) with running and with
batch statistics, and with batch statistics the gradients of sum(g ** 2), g all first gradients of
parameters. Every block has a negative and a zero gamma. No value before a ReLU is within 1e-3 of zero,
and no two positive values of a pool window are within 1e-3 of each other: the zero gamma comes with a
negative beta where there is a pool, and with a positive one where there is none.
"""
# torch==2.15.0
# safetensors==0.8.0

import copy
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import nn

SHAPE = {"n": 6, "c": 3, "h": 9, "w": 11, "channels": 5, "blocks": 2}
SEEDS = {"pool": 6, "stride": 0}
MARGIN = 1e-3
# A gradient below is zero in exact arithmetic, as is that of a bias before batch statistics.
ZERO = 1e-10


class Block(nn.Module):
    def __init__(self, c_in, c_out, pool):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, 3, stride=1 if pool else 2, padding=1)
        self.norm = nn.BatchNorm2d(c_out)
        self.pool = pool

    def forward(self, x):
        self.conv_output = self.conv(x)
        self.normalised = self.norm(self.conv_output)
        y = F.relu(self.normalised)
        return F.max_pool2d(y, 2) if self.pool else y


class Conv4(nn.Module):
    def __init__(self, pool):
        super().__init__()
        channels = [SHAPE["c"]] + [SHAPE["channels"]] * SHAPE["blocks"]
        pairs = zip(channels, channels[1:])
        self.blocks = nn.ModuleList([Block(c_in, c_out, pool) for c_in, c_out in pairs])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@torch.no_grad()
def draw_parameters(block, generator):
    def normal(tensor, scale):
        tensor.copy_(scale * torch.randn(tensor.shape, generator=generator))

    def uniform(tensor, low, high):
        tensor.copy_(low + (high - low) * torch.rand(tensor.shape, generator=generator))

    normal(block.conv.weight, 0.3)
    normal(block.conv.bias, 0.2)
    uniform(block.norm.weight, 0.8, 2.0)
    normal(block.norm.bias, 0.5)
    block.norm.weight[1] *= -1.0
    block.norm.weight[3] = 0.0
    block.norm.bias[3] = -0.4 if block.pool else 0.4
    normal(block.norm.running_mean, 0.3)
    uniform(block.norm.running_var, 0.5, 2.0)
    block.norm.num_batches_tracked.fill_(17)


def draw(variant, seed):
    """The network, the images and the gradient of the output, in float32."""
    generator = torch.Generator().manual_seed(seed)
    network = Conv4(pool=variant == "pool")
    for block in network.blocks:
        draw_parameters(block, generator)
    images = torch.randn([SHAPE[letter] for letter in "nchw"], generator=generator)
    output = copy.deepcopy(network)(images)
    return network, images, torch.randn(output.shape, generator=generator)


def smallest_margin(network):
    """Distance to the nearest kink at the latest images."""
    return min(margin for block in network.blocks for margin in block_margins(block))


def block_margins(block):
    values = block.normalised.detach()
    yield values.abs().min().item()
    if block.pool:
        windows = F.relu(values).unfold(2, 2, 2).unfold(3, 2, 2).flatten(4)
        ordered = windows.sort(-1).values
        gaps, positive = ordered.diff(dim=-1), ordered[..., :-1] > 0
        yield gaps[positive].min().item()


def named(prefix, network, tensors):
    names = [name for name, _ in network.named_parameters()]
    return {f"{prefix}/{name}": tensor for name, tensor in zip(names, tensors)}


def golden(variant, seed):
    network, images, output_gradient = draw(variant, seed)
    values = {"input": images, "output_gradient": output_gradient}
    state = network.state_dict().items()
    values |= {f"state/{name}": tensor for name, tensor in state if tensor.is_floating_point()}
    for statistics in ["running", "batch"]:
        values |= differentiated(network, images, output_gradient, statistics)
    return values


def differentiated(network, images, output_gradient, statistics):
    # A copy, because training mode moves the running averages.
    network = copy.deepcopy(network).double().train(statistics == "batch")
    images = images.double().requires_grad_()
    output_gradient = output_gradient.double().requires_grad_()
    parameters = list(network.parameters())
    output = network(images)
    assert smallest_margin(network) > MARGIN, "a value near a kink, take another seed"
    loss = (output * output_gradient).sum()
    of_images, *first = torch.autograd.grad(loss, [images, *parameters], create_graph=True)
    values = {
        f"{statistics}/output": output,
        f"{statistics}/loss": loss.reshape(1),
        f"{statistics}/gradient/input": of_images,
        **named(f"{statistics}/gradient", network, first),
    }
    if statistics == "batch":
        values |= moments(network)
        values |= second_gradients(network, images, output_gradient, first)
    return values


def moments(network):
    values = {}
    for index, block in enumerate(network.blocks):
        variance, mean = torch.var_mean(block.conv_output, (0, 2, 3), correction=0)
        values |= {f"batch/mean/{index}": mean, f"batch/variance/{index}": variance}
    return values


def second_gradients(network, images, output_gradient, first):
    squares = sum(gradient.square().sum() for gradient in first)
    wanted = [images, output_gradient, *network.parameters()]
    of_images, of_output_gradient, *of_parameters = torch.autograd.grad(squares, wanted)
    return {
        "second/loss": squares.reshape(1),
        "second/gradient/input": of_images,
        "second/gradient/output_gradient": of_output_gradient,
        **named("second/gradient", network, of_parameters),
    }


def entry(tensor):
    """Shape and values, float32 at 9 significant digits, which is every float32 exactly."""
    tensor = tensor.detach()
    tensor = torch.where(tensor.abs() < ZERO, 0.0, tensor).float()
    data = [float(f"{x:.9g}") for x in tensor.flatten().tolist()]
    return {"shape": list(tensor.shape), "data": data}


def write(path, header, cases):
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}," for key, value in header.items()]
    rows = [f"    {json.dumps(key)}: {json.dumps(entry(value))}" for key, value in cases.items()]
    path.write_text("{\n" + "\n".join(lines) + '\n  "cases": {\n' + ",\n".join(rows) + "\n  }\n}\n")


def main():
    torch.set_num_threads(1)
    cases = {}
    for variant, seed in SEEDS.items():
        cases |= {f"{variant}/{key}": value for key, value in golden(variant, seed).items()}
    header = {
        "made_by": "tests/golden/conv4.py",
        "torch": torch.__version__.split("+")[0],
        "seed": SEEDS,
        "shape": SHAPE,
        "epsilon": 1e-5,
    }
    path = Path(__file__)
    write(path.with_name("conv4.json"), header, cases)
    state = draw("pool", SEEDS["pool"])[0].state_dict()
    path.with_name("conv4.safetensors").write_bytes(save(state))
    torch.save(state, path.with_name("conv4.pt"))


if __name__ == "__main__":
    main()
