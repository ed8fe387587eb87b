"""Golden values of easyfsl: what each of its methods makes of the same features.

    python3.11 -m venv easyfsl && easyfsl/bin/pip install easyfsl==1.5.0 torch==2.15.0 numpy==2.4.6
    easyfsl/bin/python tests/golden/easyfsl.py

writes easyfsl.json beside this file. easyfsl computes in float32; here it runs in float64, which is
the better reference for another implementation in float32. Variants of a method:

- `default`: the defaults of the constructor;
- `benchmark`: scripts/methods_configs.json of easyfsl's repository, where MatchingNetworks and
  RelationNetworks are missing, and FEAT is as by default;
- `centred`: SimpleShot with the centring it was published with;
- `fast`: a learning rate at which mistakes in the fitting show;
- `soft`: a transport plan far from zeros and ones.

`logits` is what `forward` returns: probabilities for LaplacianShot and PTMAP, log-probabilities for
MatchingNetworks, scores between 0 and 1 for RelationNetworks, for all others logits to which the
temperature is not applied. Choices that hang on rounding (nearest neighbours, predictions of
queries) are checked to be clear, and transport plans to have converged.
"""

import inspect
import json
import sys
from importlib.metadata import version
from pathlib import Path

# This file has the name of the package that it imports.
HERE = Path(__file__).resolve().parent
sys.path = [folder for folder in sys.path if Path(folder).resolve() != HERE]

import numpy as np
import torch
from easyfsl.methods import (
    BDCSPN,
    FEAT,
    PTMAP,
    TIM,
    Finetune,
    LaplacianShot,
    MatchingNetworks,
    PrototypicalNetworks,
    RelationNetworks,
    SimpleShot,
    TransductiveFinetuning,
)
from easyfsl.methods.few_shot_classifier import FewShotClassifier
from easyfsl.modules import MultiHeadAttention
from torch import nn

SEED = 104
D = 16
# Channels, height and width of the feature maps of RelationNetworks: the first block pools height
# up and width down to 5.
MAP = (4, 3, 6)
SETTINGS = [
    {"ways": 5, "shots": 1, "queries": 3, "d": D},
    {"ways": 5, "shots": 5, "queries": 3, "d": D},
]
NORMALIZED = {"feature_normalization": 2}
METHODS = {
    PrototypicalNetworks: {"default": {}, "benchmark": NORMALIZED},
    SimpleShot: {
        "default": {},
        "benchmark": NORMALIZED,
        "centred": NORMALIZED | {"feature_centering": "centring"},
    },
    MatchingNetworks: {"default": {"feature_dimension": D}},
    RelationNetworks: {"default": {"feature_dimension": MAP[0]}},
    Finetune: {
        "default": {},
        "benchmark": {"fine_tuning_steps": 50, "fine_tuning_lr": 1e-4, "temperature": 10.0}
        | NORMALIZED,
        "fast": {"fine_tuning_steps": 30, "fine_tuning_lr": 0.02, "temperature": 10.0},
    },
    FEAT: {"default": {}},
    TIM: {
        "default": {},
        "benchmark": {
            "fine_tuning_steps": 50,
            "fine_tuning_lr": 1e-3,
            "cross_entropy_weight": 1.0,
            "marginal_entropy_weight": 1.0,
            "conditional_entropy_weight": 0.5,
            "temperature": 10.0,
        }
        | NORMALIZED,
        "fast": {
            "fine_tuning_steps": 20,
            "fine_tuning_lr": 0.02,
            "cross_entropy_weight": 0.8,
            "marginal_entropy_weight": 1.2,
            "conditional_entropy_weight": 0.5,
        },
    },
    BDCSPN: {"default": {}, "benchmark": NORMALIZED},
    LaplacianShot: {
        "default": {},
        "benchmark": {"inference_steps": 10, "knn": 3, "lambda_regularization": 0.1} | NORMALIZED,
    },
    PTMAP: {
        "default": {},
        "benchmark": {
            "fine_tuning_steps": 30,
            "fine_tuning_lr": 0.3,
            "lambda_regularization": 10,
            "power_factor": 0.5,
        }
        | NORMALIZED,
        "soft": {"fine_tuning_steps": 5, "lambda_regularization": 0.5, "power_factor": 0.6},
    },
    TransductiveFinetuning: {
        "default": {},
        "benchmark": {"fine_tuning_steps": 10, "fine_tuning_lr": 1e-4, "temperature": 10.0}
        | NORMALIZED,
        "fast": {"fine_tuning_steps": 20, "fine_tuning_lr": 0.02, "temperature": 3.0},
    },
}


def draw(values):
    """Four digits, so that the file says exactly what was computed with."""
    return torch.from_numpy(np.round(values, 4))


def features(ways, shots, queries, shape, generator):
    """Non-negative support and query features around a centre for each class, classes shuffled."""
    centres = generator.normal(0.2, 0.7, (ways, *shape))

    def around(each):
        labels = generator.permutation(np.arange(ways * each) % ways)
        noise = generator.normal(0, 0.3, (ways * each, *shape))
        return draw(np.maximum(centres[labels] + noise, 0)), torch.from_numpy(labels)

    return *around(shots), *around(queries)


def drawn_weights(module, deviation, generator):
    """Drawn parameters and running statistics; variances and scales of normalisation are near 1."""
    state = {}
    for name, old in module.state_dict().items():
        near_one = name.endswith(("running_var", "norm.weight", ".1.weight"))
        values = generator.normal(0, 0.1 if near_one else deviation, tuple(old.shape))
        state[name] = draw(values + near_one) if old.is_floating_point() else old
    module.load_state_dict(state)
    return module.eval()


def built(method, options, modules, centring):
    options = options | ({"feature_centering": centring} if "feature_centering" in options else {})
    if method is FEAT:
        options["attention_module"] = modules["FEAT"]
    if method is MatchingNetworks:
        options |= dict(zip(("support_encoder", "query_encoder"), modules["MatchingNetworks"]))
    if method is RelationNetworks:
        options["relation_module"] = modules["RelationNetworks"]
    return method(nn.Identity(), **options).eval()


def predicted(classifier, support, labels, queries):
    classifier.process_support_set(support, labels)
    if isinstance(classifier, MatchingNetworks):
        # easyfsl makes these float32 whatever the features are.
        classifier.one_hot_support_labels = classifier.one_hot_support_labels.double()
    with torch.no_grad():
        if isinstance(classifier, BDCSPN):
            check_choices(classifier, queries)
        logits = classifier(queries)
    if isinstance(classifier, PTMAP):
        unconverged = (logits.sum(1) - 1).abs().max()
        assert unconverged < 3e-5, "the transport plan depends on when it stops, take another seed"
    return logits


def check_choices(classifier, queries):
    queries = classifier.compute_features(queries)
    shifted = queries + classifier.support_features.mean(0) - queries.mean(0)
    first, second = classifier.cosine_distance_to_prototypes(shifted).topk(2).values.T
    assert (first - second).min() > 1e-4, "a query between two classes, take another seed"
    near = torch.cdist(queries, queries).sort().values
    assert (near[:, 3] - near[:, 2]).min() > 1e-4, "neighbours at one distance, take another seed"


def all_options(method, given):
    """Defaults of the constructors, overridden by those given."""
    defaults = {}
    for owner in (FewShotClassifier, method):
        for name, parameter in inspect.signature(owner.__init__).parameters.items():
            module = name.endswith(("module", "encoder", "backbone"))
            if parameter.default is not parameter.empty and not module:
                defaults[name] = parameter.default
    return defaults | given


def golden(setting, modules, centring, generator):
    sizes = setting["ways"], setting["shots"], setting["queries"]
    support, labels, queries, query_labels = features(*sizes, (D,), generator)
    maps, map_labels, query_maps, _ = features(*sizes, MAP, generator)
    of_maps, of_vectors = (maps, map_labels, query_maps), (support, labels, queries)
    methods = {}
    for method, variants in METHODS.items():
        task = of_maps if method is RelationNetworks else of_vectors
        methods[method.__name__] = {
            variant: {
                "options": all_options(method, options),
                "logits": predicted(built(method, options, modules, centring), *task),
            }
            for variant, options in variants.items()
        }
    return setting | {
        "support": support,
        "support_labels": labels,
        "queries_features": queries,
        "queries_labels": query_labels,
        "support_maps": maps.flatten(1),
        "support_maps_labels": map_labels,
        "queries_maps": query_maps.flatten(1),
        "methods": methods,
    }


def plain(value):
    """Nested lists, 8 significant digits."""
    if isinstance(value, torch.Tensor):
        return plain(value.tolist())
    if isinstance(value, list):
        return [plain(item) for item in value]
    return float(f"{value:.8g}") + 0.0 if isinstance(value, float) else value


def written(value, indent=0):
    """Objects of lists over lines, everything else on one line."""
    if isinstance(value, list) and isinstance(value[0], dict):
        return "[" + ", ".join(written(item, indent) for item in value) + "]"
    nested = isinstance(value, dict) and not all(
        isinstance(item, (str, int, float, type(None))) for item in value.values()
    )
    if not nested:
        return json.dumps(value if isinstance(value, dict) else plain(value))
    space = " " * (indent + 1)
    rows = (f"{space}{json.dumps(key)}: {written(item, indent + 1)}" for key, item in value.items())
    return "{\n" + ",\n".join(rows) + "\n" + " " * indent + "}"


def all_values():
    generator = np.random.default_rng(SEED)
    centring = draw(generator.uniform(0.1, 0.5, D))
    encoders = MatchingNetworks(nn.Identity(), feature_dimension=D)
    relations = RelationNetworks(nn.Identity(), feature_dimension=MAP[0])
    modules = {
        "MatchingNetworks": (
            drawn_weights(encoders.support_features_encoder, 0.3, generator),
            drawn_weights(encoders.query_features_encoding_cell, 0.3, generator),
        ),
        "RelationNetworks": drawn_weights(relations.relation_module, 0.5, generator),
        "FEAT": drawn_weights(MultiHeadAttention(1, D, D, D), 0.3, generator),
    }
    support_encoder, query_encoder = (module.state_dict() for module in modules["MatchingNetworks"])
    relation = modules["RelationNetworks"].state_dict().items()
    header = {
        "made_by": "tests/golden/easyfsl.py",
        "versions": {name: version(name) for name in ("easyfsl", "torch", "numpy")},
        "dtype": "float64",
        "seed": SEED,
        "map": list(MAP),
        "centring": centring,
        "weights": {
            "MatchingNetworks": {
                "support_encoder": support_encoder,
                "query_encoder": query_encoder,
            },
            "RelationNetworks": {k: v for k, v in relation if v.is_floating_point()},
            "FEAT": modules["FEAT"].state_dict(),
        },
    }
    settings = [golden(setting, modules, centring, generator) for setting in SETTINGS]
    return header | {"settings": settings}


def main():
    torch.set_default_dtype(torch.float64)
    path = Path(__file__).with_name("easyfsl.json")
    path.write_text(written(all_values()) + "\n")


if __name__ == "__main__":
    main()
