"""tw.nn: a network of dense layers, trained by kernels that fuse each layer's backward pass with its update."""

from __future__ import annotations

from tilewise.nn.digits import Digits, download_mnist, load_digits
from tilewise.nn.network import Layer, Network
from tilewise.nn.options import TrainingOptions
from tilewise.nn.trainer import Trainer
from tilewise.nn.training import EpochFigures, TrainingFigures, train

__all__ = [
    "Digits",
    "EpochFigures",
    "Layer",
    "Network",
    "Trainer",
    "TrainingFigures",
    "TrainingOptions",
    "download_mnist",
    "load_digits",
    "train",
]
