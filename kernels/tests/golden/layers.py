"""Golden values of single layers: convolutions of 3x3 and 1x1, batch-norm and max-pools.

    python kernels/tests/golden/layers.py

writes layers.json beside this file. Computed in float64 from float32 operands, stored as float32.

Every case has an output, the gradients of loss = sum(output * output_gradient) by the layer's operands,
and the gradients of sum(g ** 2), g all of these first gradients, by the operands and output_gradient.
The pool has windows with two and four equal values, and a dropped row and column; the batch-norm has a
negative and a zero gamma, and a mean far from zero.
"""
# torch==2.15.0

import json
from pathlib import Path

import torch
import torch.nn.functional as F

SEED = 4
EPSILON = 1e-5
# A gradient below is zero in exact arithmetic.
ZERO = 1e-10


def batch_norm(x, gamma, beta):
    return F.batch_norm(x, None, None, gamma, beta, training=True, eps=EPSILON)


def max_pool(x):
    return F.max_pool2d(x, 2)


def overlapping_max_pool(x):
    return F.max_pool2d(x, 3, stride=2, padding=1)


def convolution(stride, padding):
    return lambda x, weight, bias: F.conv2d(x, weight, bias, stride, padding)


def draw_cases():
    """Name, layer and operands in float32."""
    generator = torch.Generator().manual_seed(SEED)

    def normal(*shape):
        return torch.randn(shape, generator=generator)

    for kernel in [3, 1]:
        for stride in [1, 2]:
            operands = {"x": normal(3, 4, 7, 6), "weight": normal(5, 4, kernel, kernel), "bias": normal(5)}
            yield f"conv2d/{kernel}x{kernel}/{stride}", convolution(stride, kernel // 2), operands
    gamma = torch.tensor([1.5, -0.8, 0.0, 0.6, 1.1])
    yield "batch_norm", batch_norm, {"x": normal(4, 5, 3, 5) + 3.0, "gamma": gamma, "beta": normal(5)}
    x = normal(3, 2, 5, 7)
    x[0, 0, :2, :2] = 0.25
    x[1, 1, 2, 4] = x[1, 1, 3, 5] = 4.0
    yield "max_pool", max_pool, {"x": x}
    yield "overlapping_max_pool", overlapping_max_pool, {"x": x}


def differentiated(layer, operands, output_gradient):
    operands = {name: tensor.double().requires_grad_() for name, tensor in operands.items()}
    output_gradient = output_gradient.double().requires_grad_()
    output = layer(**operands)
    loss = (output * output_gradient).sum()
    first = torch.autograd.grad(loss, list(operands.values()), create_graph=True)
    squares = sum(gradient.square().sum() for gradient in first)
    wanted = operands | {"output_gradient": output_gradient}
    second = torch.autograd.grad(squares, list(wanted.values()), allow_unused=True)
    zeros = [torch.zeros_like(tensor) for tensor in wanted.values()]
    second = [zero if found is None else found for found, zero in zip(second, zeros)]
    return {
        "output": output,
        **{f"gradient/{name}": tensor for name, tensor in zip(operands, first)},
        **{f"second/{name}": tensor for name, tensor in zip(wanted, second)},
    }


def golden(layer, operands, generator):
    shape = layer(**operands).shape
    output_gradient = torch.randn(shape, generator=generator)
    drawn = operands | {"output_gradient": output_gradient}
    return drawn | differentiated(layer, operands, output_gradient)


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
    generator = torch.Generator().manual_seed(SEED + 1)
    cases = {}
    for name, layer, operands in draw_cases():
        values = golden(layer, operands, generator)
        cases |= {f"{name}/{key}": value for key, value in values.items()}
    header = {
        "made_by": "kernels/tests/golden/layers.py",
        "torch": torch.__version__.split("+")[0],
        "seed": SEED,
        "epsilon": EPSILON,
    }
    write(Path(__file__).with_name("layers.json"), header, cases)


if __name__ == "__main__":
    main()
