"""Classifiers over embeddings, one paper a class.

Arguments have the names of easyfsl and scikit-learn where these have the same setting, and the values of the paper by
default. Each class says which of its papers' methods it is; ``docs/learners.md`` has the formulas.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ._fewshot import Head


def _mean(base_mean: ArrayLike | None) -> dict[str, list[float]]:
    return {} if base_mean is None else {"base_mean": np.asarray(base_mean, float).tolist()}


class Prototypes(Head):
    """Prototypical network: the nearest class mean. Snell et al. 2017."""

    def __new__(cls, score: str = "squared-euclidean", scale: float = 1.0) -> Prototypes:
        """Scores are ``squared-euclidean``, ``euclidean`` or ``cosine``, times ``scale``."""
        return super().__new__(cls, "prototypes", {"score": score, "scale": scale})


class SimpleShot(Head):
    """The nearest class mean of transformed embeddings. Wang et al. 2019."""

    def __new__(
        cls,
        transform: str | None = None,
        score: str = "squared-euclidean",
        base_mean: ArrayLike | None = None,
    ) -> SimpleShot:
        """Transforms are ``un`` (none), ``l2n`` (unit length) and ``cl2n``, which first takes off ``base_mean``, the mean
        ``[d]`` of the base classes. The default is ``cl2n`` with such a mean, and ``l2n`` without."""
        transform = transform or ("l2n" if base_mean is None else "cl2n")
        settings = {"transform": transform, "score": score} | _mean(base_mean)
        return super().__new__(cls, "simpleshot", settings)


class MatchingNet(Head):
    """Matching network without full context embeddings. Vinyals et al. 2016."""

    def __new__(cls, scale: float | None = 100.0) -> MatchingNet:
        """Attention is the softmax of cosines times ``scale``; with ``None`` times the length of the query, as in easyfsl."""
        attention = "unscaled-query" if scale is None else {"cosine": {"scale": scale}}
        return super().__new__(cls, "matching", {"attention": attention})


class MetaBaseline(Head):
    """Cosines to class means. Chen et al. 2021."""

    def __new__(cls, scale: float = 10.0) -> MetaBaseline:
        """``scale`` is the factor of the cosines."""
        return super().__new__(cls, "meta-baseline", {"scale": scale})


class SimpleCnaps(Head):
    """Mahalanobis distances to class means, the classifier of Simple CNAPS. Bateni et al. 2020."""

    def __new__(cls, regulariser: float = 1.0) -> SimpleCnaps:
        """``regulariser`` is the multiple of the identity in each covariance."""
        return super().__new__(cls, "simple-cnaps", {"regulariser": regulariser})


class Dn4(Head):
    """Nearest local descriptors. Li et al. 2019."""

    def __new__(cls, maps: Sequence[int] | None = None, neighbours: int = 3) -> Dn4:
        """``maps`` is the shape ``(c, h, w)`` of the maps that embeddings are flattened from; without it they are vectors."""
        return super().__new__(cls, "dn4", {"neighbours": neighbours}, maps)


class DeepEmd(Head):
    """Earth mover's distance between maps. Zhang et al. 2020."""

    def __new__(cls, maps: Sequence[int] | None = None, temperature: float = 12.5) -> DeepEmd:
        """``maps`` is the shape ``(c, h, w)`` of the maps that embeddings are flattened from; without it they are vectors."""
        return super().__new__(cls, "deep-emd", {"temperature": temperature}, maps)


class R2d2(Head):
    """Ridge regression. Bertinetto et al. 2019."""

    def __new__(
        cls,
        alpha: float = 50.0,
        scale: float = 10.0,
        fit_intercept: bool = False,
        errors: str = "summed",
    ) -> R2d2:
        """``alpha`` is the penalty; ``errors`` are ``summed`` or ``averaged`` over examples."""
        settings = {"lambda": alpha, "scale": scale, "intercept": fit_intercept, "errors": errors}
        return super().__new__(cls, "r2d2", settings)


class MetaOptNet(Head):
    """Support vector machine. Lee et al. 2019."""

    def __new__(cls, C: float = 0.1, ridge: float = 1.0, scale: float = 1.0) -> MetaOptNet:
        """``C`` is the price of an error, ``ridge`` what is added to the kernel's diagonal."""
        return super().__new__(cls, "meta-opt-net", {"c": C, "ridge": ridge, "scale": scale})


class LogisticRegression(Head):
    """Logistic regression. Tian et al. 2020."""

    def __new__(cls, C: float = 1.0, unit_length: bool = True) -> LogisticRegression:
        """``C`` is the price of errors; embeddings are brought to unit length unless ``unit_length`` is false."""
        return super().__new__(cls, "logistic", {"c": C, "unit_length": unit_length})


class Baseline(Head):
    """A linear layer fitted by gradient descent. Chen et al. 2019."""

    def __new__(
        cls,
        fine_tuning_steps: int = 100,
        fine_tuning_lr: float = 0.01,
        momentum: float = 0.9,
        dampening: float = 0.9,
        weight_decay: float = 0.001,
    ) -> Baseline:
        """The steps are those of ``torch.optim.SGD`` over the whole support."""
        settings = {"steps": fine_tuning_steps, "rate": fine_tuning_lr, "momentum": momentum}
        settings |= {"dampening": dampening, "weight_decay": weight_decay}
        return super().__new__(cls, "baseline", settings)


class BaselinePlusPlus(Head):
    """A layer of cosines fitted by gradient descent. Chen et al. 2019."""

    def __new__(
        cls,
        fine_tuning_steps: int = 100,
        fine_tuning_lr: float = 0.01,
        momentum: float = 0.9,
        dampening: float = 0.9,
        weight_decay: float = 0.001,
        scale: float = 2.0,
    ) -> BaselinePlusPlus:
        """``scale`` is the factor of the cosines."""
        settings = {"steps": fine_tuning_steps, "rate": fine_tuning_lr, "momentum": momentum}
        settings |= {"dampening": dampening, "weight_decay": weight_decay, "scale": scale}
        return super().__new__(cls, "baseline++", settings)


class Finetune(Head):
    """Class means, fine-tuned by Adam on the support. After Chen et al. 2019, as in easyfsl."""

    def __new__(
        cls,
        fine_tuning_steps: int = 200,
        fine_tuning_lr: float = 1e-4,
        temperature: float = 1.0,
    ) -> Finetune:
        """``temperature`` is the factor of the cosines."""
        settings = {"steps": fine_tuning_steps, "rate": fine_tuning_lr, "temperature": temperature}
        return super().__new__(cls, "finetune", settings)


class TransductiveFinetuning(Head):
    """Class means, fine-tuned on the support and on the entropy of the queries. Dhillon et al. 2020."""

    def __new__(
        cls,
        fine_tuning_steps: int = 25,
        fine_tuning_lr: float = 5e-5,
        temperature: float = 15.0,
        similarity: str = "cosine",
        update: str = "in-turn",
    ) -> TransductiveFinetuning:
        """Similarities are ``dot``, ``cosine``, ``squared-euclidean`` and ``euclidean``; updates ``in-turn`` and ``joint``."""
        settings = {"steps": fine_tuning_steps, "rate": fine_tuning_lr, "temperature": temperature}
        settings |= {"similarity": similarity, "update": update}
        return super().__new__(cls, "transductive-finetuning", settings)


class Tim(Head):
    """Transductive information maximisation, by gradient descent or in closed form. Boudiaf et al. 2020."""

    def __new__(
        cls,
        fine_tuning_steps: int | None = None,
        fine_tuning_lr: float = 1e-4,
        cross_entropy_weight: float = 0.1,
        marginal_entropy_weight: float = 1.0,
        conditional_entropy_weight: float = 0.1,
        temperature: float = 15.0,
        similarity: str = "squared-euclidean",
        solver: str = "gd",
    ) -> Tim:
        """Solvers are ``gd``, of 1000 steps by default, and ``adm``, of 150. Similarities are those of
        ``TransductiveFinetuning``; ``adm`` has ``squared-euclidean`` alone."""
        if solver not in ("gd", "adm"):
            raise ValueError(f"solver is {solver!r}: there are 'gd' and 'adm'")
        settings = {
            "rate": fine_tuning_lr,
            "cross_entropy": cross_entropy_weight,
            "marginal_entropy": marginal_entropy_weight,
            "conditional_entropy": conditional_entropy_weight,
            "temperature": temperature,
            "similarity": similarity,
        }
        if fine_tuning_steps is not None:
            settings["steps"] = fine_tuning_steps
        return super().__new__(cls, f"tim-{solver}", settings)


class BdCspn(Head):
    """Class means rectified by the queries. Liu et al. 2020."""

    def __new__(
        cls, scale: float = 10.0, lengths: str = "unit", scored: str = "shifted"
    ) -> BdCspn:
        """Lengths are ``unit`` or ``given``; ``scored`` queries are ``shifted`` or ``unshifted``."""
        return super().__new__(
            cls, "bd-cspn", {"scale": scale, "lengths": lengths, "scored": scored}
        )


class LaplacianShot(Head):
    """Neighbouring queries share a class. Ziko et al. 2020."""

    def __new__(
        cls,
        inference_steps: int = 20,
        neighbours: int = 3,
        lambda_regularization: float = 1.0,
        tolerance: float = 1e-6,
        scale: float = 10.0,
        weights: str = "over-classes",
        lengths: str = "unit",
        scored: str = "shifted",
        base_mean: ArrayLike | None = None,
    ) -> LaplacianShot:
        """``neighbours`` leave out the query itself, which ``knn`` of easyfsl counts. Weights are ``over-classes`` or
        ``within-class``; ``base_mean`` is the mean ``[d]`` of the base classes, taken off embeddings first."""
        settings = {
            "steps": inference_steps,
            "neighbours": neighbours,
            "lambda": lambda_regularization,
            "tolerance": tolerance,
            "scale": scale,
            "weights": weights,
            "lengths": lengths,
            "scored": scored,
        }
        return super().__new__(cls, "laplacian-shot", settings | _mean(base_mean))


class PtMap(Head):
    """Optimal transport of the queries to the classes. Hu et al. 2021."""

    def __new__(
        cls,
        fine_tuning_steps: int = 20,
        fine_tuning_lr: float = 0.2,
        lambda_regularization: float = 10.0,
        power_factor: float = 0.5,
        after_power: str = "centred",
    ) -> PtMap:
        """After the powers, embeddings are ``centred`` and of unit length, or nothing is done (``nothing``)."""
        settings = {
            "steps": fine_tuning_steps,
            "rate": fine_tuning_lr,
            "lambda": lambda_regularization,
            "power": power_factor,
            "after_power": after_power,
        }
        return super().__new__(cls, "pt-map", settings)


class SoftKMeans(Head):
    """Class means refined by soft assignments of the queries. Ren et al. 2018."""

    def __new__(cls, steps: int = 1) -> SoftKMeans:
        """``steps`` is the number of refinements."""
        return super().__new__(cls, "soft-k-means", {"steps": steps})


__all__ = [
    "Baseline",
    "BaselinePlusPlus",
    "BdCspn",
    "DeepEmd",
    "Dn4",
    "Finetune",
    "Head",
    "LaplacianShot",
    "LogisticRegression",
    "MatchingNet",
    "MetaBaseline",
    "MetaOptNet",
    "Prototypes",
    "PtMap",
    "R2d2",
    "SimpleCnaps",
    "SimpleShot",
    "SoftKMeans",
    "Tim",
    "TransductiveFinetuning",
]
