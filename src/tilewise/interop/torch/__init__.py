"""PyTorch: its tensors as views; and, loaded when asked for, operators, layers and the patching of models.

Importing this imports no torch: ``operators``, ``gradients``, ``layers`` and ``patching`` do, and come with first use.
"""

from __future__ import annotations

from tilewise.interop.torch.tensors import TorchLibrary, keep_out_of_dynamo, operators_for

__all__ = ["TorchLibrary", "keep_out_of_dynamo", "operators_for"]
