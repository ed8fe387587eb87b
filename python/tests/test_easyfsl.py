"""Heads give the numbers of easyfsl 1.5.0 on the same random features."""

import numpy as np
import pytest

from fewshot import heads

TOLERANCE = 1e-4


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def lengths(options):
    return "given" if options["feature_normalization"] is None else "unit"


def optimizer(options):
    return {name: options[name] for name in ("fine_tuning_steps", "fine_tuning_lr", "temperature")}


def prototypes(options, _):
    return heads.Prototypes("euclidean"), 1


def simple_shot(options, golden):
    if options.get("feature_centering"):
        return heads.SimpleShot(score="cosine", base_mean=golden["centring"]), 1
    transform = {"given": "un", "unit": "l2n"}[lengths(options)]
    return heads.SimpleShot(transform, "cosine"), 1


def finetune(options, _):
    return heads.Finetune(**optimizer(options)), options["temperature"]


def transductive_finetuning(options, _):
    head = heads.TransductiveFinetuning(
        **optimizer(options), similarity="euclidean", update="joint"
    )
    return head, options["temperature"]


def tim(options, _):
    weights = [f"{term}_entropy_weight" for term in ("cross", "marginal", "conditional")]
    weights = {name: options[name] for name in weights}
    return heads.Tim(**optimizer(options), **weights, similarity="cosine"), options["temperature"]


def bd_cspn(options, _):
    return heads.BdCspn(1.0, lengths(options), "unshifted"), 1


def laplacian_shot(options, _):
    head = heads.LaplacianShot(
        inference_steps=options["inference_steps"],
        neighbours=options["knn"] - 1,
        lambda_regularization=options["lambda_regularization"],
        scale=1.0,
        weights="within-class",
        lengths=lengths(options),
        scored="unshifted",
    )
    return head, np.exp


def pt_map(options, _):
    names = ["fine_tuning_steps", "fine_tuning_lr", "lambda_regularization", "power_factor"]
    return heads.PtMap(**{name: options[name] for name in names}, after_power="nothing"), np.exp


METHODS = {
    "PrototypicalNetworks": prototypes,
    "SimpleShot": simple_shot,
    "Finetune": finetune,
    "TransductiveFinetuning": transductive_finetuning,
    "TIM": tim,
    "BDCSPN": bd_cspn,
    "LaplacianShot": laplacian_shot,
    "PTMAP": pt_map,
}

# These divide by lengths themselves.
UNIT_BY_THEMSELVES = {"SimpleShot", "BDCSPN", "LaplacianShot"}


@pytest.mark.parametrize("method", METHODS)
def test_logits_are_those_of_easyfsl(method, golden):
    variants = 0
    for setting in golden["settings"]:
        for variant, case in setting["methods"][method].items():
            options = case["options"]
            rows = [np.array(setting[name]) for name in ("support", "queries_features")]
            if method not in UNIT_BY_THEMSELVES and lengths(options) == "unit":
                rows = map(unit, rows)
            support, queries = rows
            head, scale = METHODS[method](options, golden)
            logits = head.logits(support, setting["support_labels"], queries)
            logits = scale(logits) if callable(scale) else logits / scale
            expected = np.array(case["logits"])
            off = np.abs(logits - expected) / np.maximum(np.abs(expected), 1)
            assert off.max() <= TOLERANCE, f"{variant}, {setting['shots']} shots: {off.max():.1e}"
            variants += 1
    assert variants >= 2
