"""Whether all blocks of a cooperative launch are on a GPU at once: they wait for one another, so they must be."""

from __future__ import annotations

from tilewise.errors import LaunchError
from tilewise.gpus import Gpu
from tilewise.instruments.occupancy import occupancy
from tilewise.launch import Launch
from tilewise.toolchain.binary import Resources

__all__ = ["check_cooperative"]

_BOUNDS = {
    "registers": "registers",
    "shared": "shared memory",
    "warps": "room for warps",
    "blocks": "room for blocks",
    "barriers": "barriers",
}


def check_cooperative(gpu: Gpu, name: str, launch: Launch, resources: Resources | None) -> None:
    """Refuse a cooperative launch of more blocks than ``gpu`` holds, naming how many fit and what bounds them.

    Of foreign PTX, whose ``resources`` are not known, warps, blocks and dynamic shared memory alone are counted.
    """
    registers, static, barriers = 0, 0, 0
    if resources is not None:
        registers, static, barriers = resources.registers, resources.shared_bytes, resources.barriers
    filled = occupancy(gpu, launch.threads_per_block, registers, static + launch.shared, barriers=barriers)
    fitting = filled.blocks * gpu.sms
    if launch.blocks <= fitting:
        return
    bound = " and ".join(_BOUNDS.get(limit, limit) for limit in filled.binding)
    raise LaunchError(
        "grid",
        f"must have at most {fitting:,} blocks in a cooperative launch of {name} on {gpu.title}: each of its "
        f"{gpu.sms} multiprocessors holds {filled.blocks}, bounded by {bound}",
        f"{' × '.join(map(str, launch.grid))} = {launch.blocks:,}",
        "let each block do several blocks' work",
    )
