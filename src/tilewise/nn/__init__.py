"""tw.nn: a network of dense layers, trained by kernels that fuse each layer's backward pass with its update."""

from __future__ import annotations

from tilewise.nn.network import Layer, Network
from tilewise.nn.options import TrainingOptions
from tilewise.nn.trainer import Trainer

__all__ = ["Layer", "Network", "Trainer", "TrainingOptions"]
