"""The compiler's log → errors and warnings: file, line, source text, caret.

NVRTC reports in two voices. The C++ front end names a file and a line and draws a caret; the assembler
names only a line of the PTX, which is traced back here to the CUDA line that it came from.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tilewise.errors import ArchError, CompileError

__all__ = ["Diagnostic", "failure", "read_log", "warnings"]

_HEAD = re.compile(
    r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<kind>catastrophic error|error|warning|remark)"
    r"(?: #(?P<code>[\w-]+))?: (?P<text>.*)$"
)
_ASSEMBLER = re.compile(r"^ptxas .*?, line (?P<line>\d+); (?P<kind>error|fatal|warning)\s*: (?P<text>.*)$")
_ASSEMBLER_PLAIN = re.compile(r"^ptxas (?P<kind>error|fatal|warning)\s*: (?P<text>.*)$")
_SLOW = re.compile(r"^ptxas info\s*: \((?P<code>C\d+)\) (?P<text>Potential Performance Loss: .*)$")
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_NEEDS = re.compile(r"requires? (?:\.target|target|SM|PTX ISA).*?(sm_\d+[af]?)")
_NAMES_FILE = "__nv_name_map"  # what NVRTC calls the list of name expressions that it is given
_MOST = 5  # errors shown in full; a mistake often brings a crowd


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One message of the compiler."""

    kind: str  # "error" or "warning"
    text: str
    file: str = ""
    line: int = 0
    source: str = ""  # the line's own text
    column: int = 0  # of the caret, from 1; 0 when there is none
    code: str = ""

    def __str__(self) -> str:
        code = f" [{self.code}]" if self.code else ""
        where = f"{self.file}:{self.line}: " if self.line else ""
        head = f"{where}{self.kind}: {self.text}{code}"
        if not self.source:
            return head
        number = str(self.line)
        shown = f"{head}\n {number} | {self.source}"
        # NOTE: the compiler counts a tab as one column; only a tab below a tab keeps the caret in its place.
        before = re.sub(r"[^\t]", " ", self.source[: self.column - 1])
        caret = f"\n {' ' * len(number)} | {before:<{self.column - 1}}^" if self.column else ""
        return shown + caret


def read_log(log: str) -> list[Diagnostic]:
    """The messages of a log, in order; the assembler's resource report is not among them."""
    found: list[Diagnostic] = []
    lines = log.splitlines()
    for i, line in enumerate(lines):
        if match := _HEAD.match(line):
            source, column = _excerpt(lines, i + 1)
            text = match["text"] + _continued(lines, i + 1)
            kind = "error" if "error" in match["kind"] else "warning"
            code = match["code"] or ""
            found.append(Diagnostic(kind, text, match["file"], int(match["line"]), source, column, code))
        elif match := _ASSEMBLER.match(line):
            kind = "warning" if match["kind"] == "warning" else "error"
            found.append(Diagnostic(kind, match["text"].strip(), "PTX", int(match["line"])))
        elif (match := _ASSEMBLER_PLAIN.match(line)) and "Ptx assembly aborted" not in line:
            kind = "warning" if match["kind"] == "warning" else "error"
            found.append(Diagnostic(kind, match["text"].strip()))
        elif match := _SLOW.match(line):  # the assembler calls it information; it costs most of the speed
            text, _, number = match["text"].rpartition(" in line ")
            file, number = ("PTX", number) if number.isdecimal() else ("", "0")
            text = " ".join((text if file else match["text"]).split())
            found.append(Diagnostic("warning", text, file, int(number), code=match["code"]))
        elif match := re.match(r"^(?:error|nvrtc: error): (.*)$", line):
            found.append(Diagnostic("error", match[1]))
    return found


def _excerpt(lines: list[str], start: int) -> tuple[str, int]:
    """The source line and caret column drawn under a message; NVRTC indents both by two spaces."""
    for i in range(start, min(start + 6, len(lines) - 1)):
        if _HEAD.match(lines[i]):
            break
        if lines[i + 1].strip() == "^":
            return lines[i][2:], lines[i + 1].index("^") - 1
    return "", 0


def _continued(lines: list[str], start: int) -> str:
    """The indented lines that go on with a message, before its excerpt."""
    text = ""
    for i in range(start, len(lines)):
        if not lines[i].startswith("          ") or lines[i].strip() == "^":
            break
        if i + 1 < len(lines) and lines[i + 1].strip() == "^":
            break
        text += " " + lines[i].strip()
    return text


def warnings(log: str, ptx: str, source: str, filename: str) -> tuple[str, ...]:
    """The warnings of a log as texts with their excerpts; the assembler's at the CUDA line that its line came from."""
    found = [item for item in read_log(log) if item.kind == "warning"]
    return tuple(str(_traced(item, ptx, source, filename) if item.file == "PTX" else item) for item in found)


def failure(log: str, source: str, filename: str, arch: str, ptx: Callable[[], str]) -> CompileError:
    """The error to raise for a failed compilation.

    ``ptx`` is called only when the assembler refused the PTX; it returns that PTX, or "".
    """
    errors = [item for item in read_log(log) if item.kind == "error"]
    if any(item.file == "PTX" for item in errors):
        text = ptx()
        errors = [_traced(item, text, source, filename) for item in errors]
    if not errors:
        last = next((line for line in reversed(log.splitlines()) if line.strip()), "no reason was given")
        return CompileError(f"{filename}: error: {last.strip()}")
    if errors[0].file == _NAMES_FILE:
        asked = errors[0].source.rpartition("nv_mangled_name ")[2]
        return CompileError(f"name {asked!r} is not a kernel of {filename}: {errors[0].text}")
    shown = "\n".join(str(item) for item in errors[:_MOST])
    more = len(errors) - _MOST
    rest = f"\n… and {more} more error{'s' if more > 1 else ''}" if more > 0 else ""
    needed = next((match[1] for item in errors if (match := _NEEDS.search(item.text))), "")
    if needed:
        return ArchError(
            f"{filename} needs {needed} or newer, not {arch}; compile it for {needed}\n{shown}{rest}"
        )
    return CompileError(f"{shown}{rest}{_missing_header(errors)}{_host_code(errors)}")


def _missing_header(errors: list[Diagnostic]) -> str:
    missing = [item.text for item in errors if "open source file" in item.text]
    if any('"cuda' in text for text in missing):
        return "\nCUDA's own headers are not part of NVRTC; pip install 'tilewise[cuda-headers]'"
    if missing:
        return "\nNVRTC has no host headers; give the folder in include_dirs= (tilewise … -I) or the text in headers="
    return ""


def _host_code(errors: list[Diagnostic]) -> str:
    """The advice where host code that stands beside kernels, such as in a header, does not compile."""
    hosts = re.compile(r'host (?:function|variable)|"cuda[A-Z]\w*" is undefined')
    if not any(hosts.search(item.text) for item in errors):
        return ""
    return "\nNVRTC compiles kernels alone: put code of the host between #ifndef __CUDACC_RTC__ and #endif"


def _traced(item: Diagnostic, ptx: str, source: str, filename: str) -> Diagnostic:
    """An assembler's message at the CUDA line that its PTX line came from."""
    lines = ptx.splitlines()
    if not 0 < item.line <= len(lines):
        text = f"{item.text} (line {item.line} of the PTX)"
        return Diagnostic(item.kind, text, filename, code=item.code)
    instruction = lines[item.line - 1].strip()
    text = f"{item.text} (PTX line {item.line}: {instruction})"
    for line in reversed(lines[: item.line]):
        match = _LOC.match(line)
        if match and int(match[1]) == 1 and int(match[2]) > 0:
            number, own = int(match[2]), source.splitlines()
            shown = own[number - 1] if number <= len(own) else ""
            column = int(match[3]) if shown else 0
            return Diagnostic(item.kind, text, filename, number, shown, column, item.code)
        if line.startswith("{"):
            break
    return Diagnostic(item.kind, text, code=item.code)
