"""What the emulator makes of PTX, as LLVM text: ``python -m tests.lowered_texts`` prints a line for each kernel.

The kernels are those that Triton made (``golden/triton.json.gz``) and one for each form of ``golden/ptxas/modifiers.jsonl``.
A line has a hash of the text, for each of the builds. Two lists that are equal, one from before a change and one from
after it, show that the change left the code of those kernels as it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from tests.emulator.instructions.test_modifiers import FORMS, KERNEL
from tests.triton.compiler import golden
from tilewise.emulator.analysis.program import Program
from tilewise.emulator.lowering.lower import lower
from tilewise.emulator.ptx.parse import parse

__all__ = ["kernels", "llvm_text"]

BUILDS = (("plain", False), ("plain", True), ("counted", False), ("checked", False))


def llvm_text(ptx: str, entry: str, threads: int = 128, mode: str = "plain", general: bool = False) -> str:
    """Return the LLVM text of one build of a kernel."""
    return lower(Program(parse(ptx), entry, (threads, 1, 1)), general, "k", mode).text


def kernels() -> Iterator[tuple[str, str, str, int]]:
    """Yield name, PTX, entry and threads of each kernel."""
    for form in FORMS:
        yield form.name, KERNEL.format(line=form.line(".".join(form.parts))), "k", 128
    for key, kernel in golden().items():
        yield key, kernel.ptx, kernel.entry, 32 * kernel.warps


def main() -> None:
    for name, ptx, entry, threads in kernels():
        texts = "".join(llvm_text(ptx, entry, threads, mode, general) for mode, general in BUILDS)
        print(hashlib.sha256(texts.encode()).hexdigest()[:16], name)


if __name__ == "__main__":
    main()
