"""A program that assembles: PTX on the standard input → machine code on the standard output, the log on the other.

A process of its own, as the assembler is code that other people's PTX may bring down. It imports nothing of tilewise.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main(arch: str) -> int:
    """Assemble for ``arch``; the exit status says whether the assembler took it, 3 that there is none."""
    try:
        from cuda.bindings import nvjitlink

        nvjitlink.version()
    except Exception as error:  # the loader raises types of its own
        sys.stderr.write(str(error))
        return 3
    # NOTE: nvJitLink 13.5 reads on behind a last line that no new line ends, and may crash.
    text = sys.stdin.buffer.read() + b"\n"
    options = [f"-arch={arch}", "-lineinfo", "-verbose"]
    handle = nvjitlink.create(len(options), options)
    failed = False
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, text, len(text), "kernel.ptx")
        nvjitlink.complete(handle)
    except nvjitlink.nvJitLinkError:
        failed = True
    for size_of, get in (
        (nvjitlink.get_error_log_size, nvjitlink.get_error_log),
        (nvjitlink.get_info_log_size, nvjitlink.get_info_log),
    ):
        log = bytearray(size_of(handle))
        get(handle, log)
        sys.stderr.buffer.write(bytes(log).rstrip(b"\0"))
    if failed:
        return 1
    code = bytearray(nvjitlink.get_linked_cubin_size(handle))
    nvjitlink.get_linked_cubin(handle, code)
    sys.stdout.buffer.write(code)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
