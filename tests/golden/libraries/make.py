"""Make the PTX beside the sources: ``python tests/golden/libraries/make.py [folder of more headers …]``.

The headers of CUDA are those of the extra ``cuda-headers``; CUTLASS's are in the wheel ``nvidia-cutlass``,
whose folder is to be given. What is here was made with NVRTC 13.5 and CCCL 13.3; of CUTLASS with its 4.2 and
CCCL 13.0, as it does not go with a newer one. Line tables go, and variables that nothing uses.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import tilewise as tw

HERE = Path(__file__).parent
ARCHS = {
    "scan": "sm_80",
    "sort": "sm_75",
    "pipeline": "sm_90a",
    "barrier": "sm_90a",
    "groups": "sm_80",
    "tiles": "sm_80",
    "gemm": "sm_80",
}
_DECLARED = re.compile(r"\.global \.align \d+ \.\w+ (\w+)")


def stripped(text: str) -> str:
    """The PTX without what does not matter to a launch."""
    text = text.partition("\t.section\t.debug_str")[0]
    text = re.sub(r"\n\t?\.(?:loc|file)[^\n]*", "", text)
    text = re.sub(r"//[^\n]*", "", text)
    kept = []
    for line in text.splitlines():
        declared = _DECLARED.match(line)
        unused = declared and len(re.findall(rf"\b{declared[1]}\b", text)) == 1
        if line.strip() and not unused:
            kept.append(line.rstrip())
    return "\n".join(kept) + "\n"


def main() -> None:
    for name, arch in ARCHS.items():
        source = (HERE / f"{name}.cu").read_text(encoding="utf-8")
        # CUTLASS has functions that do not say where they run.
        options = ("-default-device",)
        kernel = tw.Kernel(source, name, arch, include_dirs=sys.argv[1:], options=options)
        (HERE / f"{name}.ptx").write_text(stripped(kernel.build().ptx), encoding="utf-8")


if __name__ == "__main__":
    main()
