"""The CUDA sources, each beside its launch geometry, and the ladder that they make."""

from tilewise.kernels.ladder import ladder
from tilewise.kernels.rung import Rung

__all__ = ["Rung", "ladder"]
