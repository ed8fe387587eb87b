"""Few-shot classification of embeddings and pictures: heads, tests over episodes, and adapted models.

Embeddings are arrays ``[n, d]``: those of float32 in C order are read where they lie, others are converted. Computing
lets other threads of Python run.
"""

from typing import NamedTuple

import numpy as np

from . import heads
from ._fewshot import (
    METHODS,
    AdaptedModel,
    Backbone,
    Evaluation,
    Features,
    Prediction,
    Sampler,
    __version__,
    embed,
    evaluate,
)


class Episode(NamedTuple):
    """An episode of embeddings, in the order of easyfsl's batches."""

    support: np.ndarray
    """Embeddings of the labelled examples, ``[ways * shots, d]``."""
    labels: np.ndarray
    """Their labels from 0 to ``ways - 1``, ``[ways * shots]``."""
    queries: np.ndarray
    """Embeddings to classify, ``[ways * queries, d]``."""
    query_labels: np.ndarray
    """Their labels, ``[ways * queries]``."""
    classes: list[str]
    """The class of each label."""


__all__ = [
    "METHODS",
    "AdaptedModel",
    "Backbone",
    "Episode",
    "Evaluation",
    "Features",
    "Prediction",
    "Sampler",
    "__version__",
    "embed",
    "evaluate",
    "heads",
]
