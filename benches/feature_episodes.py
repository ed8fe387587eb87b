"""Episodes a second of easyfsl's transductive methods, beside `cargo bench --bench feature_episodes`.

pip install torch easyfsl==1.5.0
python benches/feature_episodes.py [threads]

Embeddings are there already: what is timed is a support set processed and its queries classified, of
5-way 1-shot tasks with 15 queries a class and 640 features, drawn like those of the bench.
"""

import sys
import time

import torch
from easyfsl.methods import BDCSPN, PTMAP, TIM, LaplacianShot, TransductiveFinetuning

torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
generator = torch.Generator().manual_seed(0)


def task():
    centres = torch.randn(5, 640, generator=generator).abs() * 0.5

    def around(count):
        noise = torch.randn(5 * count, 640, generator=generator) * 0.8
        return (centres.repeat_interleave(count, 0) + noise).relu()

    return around(1), torch.arange(5), around(15)


tasks = [task() for _ in range(200)]
wanted = torch.arange(5).repeat_interleave(15)
for name, head, count in [
    ("bd-cspn", BDCSPN(feature_normalization=2.0), 200),
    ("laplacian-shot", LaplacianShot(feature_normalization=2.0), 200),
    ("pt-map", PTMAP(), 60),
    ("tim-gd, 50 steps", TIM(), 20),
    ("transductive-finetuning", TransductiveFinetuning(), 20),
]:
    # PT-MAP's powers want features of ordinary backbones, which are small.
    factor = 0.002 if name == "pt-map" else 1.0
    rates = []
    for _ in range(3):
        start, correct = time.perf_counter(), 0.0
        for support, labels, queries in tasks[:count]:
            head.process_support_set(support * factor, labels)
            logits = head(queries * factor).detach()
            correct += (logits.argmax(1) == wanted).float().mean().item()
        rates.append(count / (time.perf_counter() - start))
    rates = ", ".join(f"{rate:.0f}" for rate in rates)
    print(f"{name:<26}{count:>8}{rates:>24}{100 * correct / count:>12.2f} %", flush=True)
