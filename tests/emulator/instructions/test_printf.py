"""printf of kernels: its order, its formats beside the C library's, and pointers that lead nowhere."""

from __future__ import annotations

import ctypes
import math
import os
import re
import struct
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import tilewise as tw
from tilewise.emulator.running.printf import format_printf
from tilewise.errors import KernelFault

COUNT = 64


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng()


PRINTING = r"""
extern "C" __global__ void say(const int* in, int* out) {
  int t = threadIdx.x;
  char word[8]; for (int i = 0; i < 5; i++) word[i] = 'a' + (t + i) % 26; word[5] = 0;
  if (t % 20 == 1) {
    int taken = printf("block %d: %5d|%-5d|%05d %s %.3f %c %llx %s%%\n",
           blockIdx.x, in[t], t, t, word, in[t] / 8.0, 'A' + t,
           (unsigned long long)in[t] << 32, t == 1 ? "first" : "later");
    if (blockIdx.x == 0) out[t] = taken;
  }
  if (t == 63 && blockIdx.x == 2) printf("no arguments\n");
}
"""


def test_printf_comes_in_the_order_of_blocks(
    rng: np.random.Generator, capsys: pytest.CaptureFixture[str]
) -> None:
    a, out = rng.integers(0, 1000, COUNT).astype(np.int32), np.zeros(COUNT, np.int32)
    tw.Kernel(PRINTING, "say", arch="sm_80")(3, COUNT, [a, out], device="emulator")
    wanted = ""
    for block in range(3):
        for t in (1, 21, 41, 61):
            word = "".join(chr(97 + (t + i) % 26) for i in range(5))
            n, label = int(a[t]), "first" if t == 1 else "later"
            wanted += f"block {block}: {n:5d}|{t:<5d}|{t:05d} {word} {n / 8:.3f} {chr(65 + t)} {n << 32:x} {label}%\n"
    assert capsys.readouterr().out == wanted + "no arguments\n"
    assert list(out[[1, 21, 41, 61]]) == [9] * 4 and out.sum() == 36


def test_printf_comes_by_block_whichever_starts_first(capsys: pytest.CaptureFixture[str]) -> None:
    source = 'extern "C" __global__ void k() { printf("%d ", blockIdx.x); }'
    tw.Kernel(source, "k", arch="sm_80")(5, 1, [], device=tw.device("emulator", order="late"))
    assert capsys.readouterr().out == "0 1 2 3 4 "


def test_a_byte_that_is_no_text_shows_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    source = r'extern "C" __global__ void k() { printf("<%c\xe2\x82\xac>", 0xFF); }'
    tw.Kernel(source, "k", arch="sm_80")(1, 1, [], device="emulator")
    assert capsys.readouterr().out == "<\N{REPLACEMENT CHARACTER}\N{EURO SIGN}>"


def formatted(form: str, *values: int | float | bytes) -> tuple[bytes, int]:
    """What printf makes of some values. The address of a text is its place among them, and 1 more."""
    places = iter(range(len(values)))

    def fetch(size: int) -> int:
        value = values[place := next(places)]
        if isinstance(value, bytes):
            return place + 1
        if isinstance(value, float):
            assert size == 8
            return int.from_bytes(struct.pack("<d", value), "little")
        return value % (1 << (8 * size))

    def read_text(address: int) -> bytes:
        text = values[address - 1]
        assert isinstance(text, bytes)
        return text

    return format_printf(form.encode(), fetch, read_text)


# What C's printf gives.
FORMATS = [
    ("%d %i %u", (-5, 7, -1), "-5 7 4294967295"),
    ("%x %X %o %#x %#X %#o %#x", (255, 255, 8, 255, 255, 8, 0), "ff FF 10 0xff 0XFF 010 0"),
    ("%+d % d %+5d|%-+6d|", (3, 3, 3, 3), "+3  3    +3|+3    |"),
    ("%08.3d|%8.3d|%-8.3d|%.0d|%.d", (5, 5, 5, 0, 0), "     005|     005|005     ||"),
    ("%08d|%-08d|%+08d", (-42, -42, 42), "-0000042|-42     |+0000042"),
    ("%#010x|%#8o", (255, 8), "0x000000ff|     010"),
    ("%hd %hhd %hu %hhu", (70_000, 300, 70_000, 300), "4464 44 4464 44"),
    ("%lld %llu %zu %jd", (-1, -1, 2**40, -(2**40)), f"-1 {2**64 - 1} {2**40} {-(2**40)}"),
    ("%c%c|%3c|%-3c|", (72, 105, 33, 33), "Hi|  !|!  |"),
    ("%s|%10s|%-10s|%.2s", (b"abc", b"abc", b"abc", b"abc"), "abc|       abc|abc       |ab"),
    ("%p %p", (0x7F00, 0), "0x7f00 (nil)"),
    ("%f %.2f %.0f %#.0f", (1.5, 2.675, 0.5, 0.5), "1.500000 2.67 0 0."),
    ("%e %.3E %g %G %#g", (12345.678, 12345.678, 1e-5, 1e20, 1.5), "1.234568e+04 1.235E+04 1e-05 1E+20 1.50000"),
    ("%10.2f|%-10.2f|%010.2f|%+.1f|% .1f", (-3.14159,) * 3 + (1.0, 1.0), "     -3.14|-3.14     |-000003.14|+1.0| 1.0"),
    ("%f %F %5.1f|%05f", (float("inf"), float("-inf"), float("nan"), float("inf")), "inf -INF   nan|  inf"),
    ("%.*d|%.*d|%.*f|%.*s|%.*x|%*.*d|", (-1, 0, -3, 7, -1, 1.5, -2, b"abc", 2, 10, 6, -1, 0), "0|7|1.500000|abc|0a|     0|"),
    ("%*d|%*s|%0*d|", (-4, 7, -5, b"abc", -4, 7), "7   |abc  |7   |"),
    ("%a %A %.2a %a %.0a", (1.0, -0.5, 1.999, 0.0, 1.5), "0x1p+0 -0X1P-1 0x2.00p+0 0x0p+0 0x2p+0"),
    ("%a %.13a %a", (5e-324, 1.0, 3.5), "0x0.0000000000001p-1022 0x1.0000000000000p+0 0x1.cp+1"),
    ("%*d|%-*d|%.*f|%*d|%.*d", (5, 1, 5, 1, 2, 3.14159, -4, 7, -1, 8), "    1|1    |3.14|7   |8"),
    ("100%% %5%", (), "100% %"),
    ("%n%d", (0, 4), "4"),
    ("%k %", (), "%k %"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "values", "wanted"), FORMATS)
def test_formats(form: str, values: tuple[int | float | bytes, ...], wanted: str) -> None:
    text, taken = formatted(form, *values)
    assert text.decode() == wanted and taken == len(values)


def rounds_up(number: float, digits: int) -> bool:
    """Whether so many digits of a number are those of a power of ten that is larger."""
    if not math.isfinite(number) or not number:
        return False
    return int(f"{abs(number):.{digits - 1}e}".partition("e")[2]) > Decimal(number).adjusted()


@pytest.mark.skipif(os.name == "nt", reason="without snprintf")
@given(
    st.lists(st.sampled_from("-+ #0"), max_size=3).map("".join),
    st.sampled_from(["", "1", "9", "24"]),
    st.sampled_from(["", ".", ".0", ".1", ".7"]),
    st.sampled_from(["diouxX", "fFeEgG"]).flatmap(st.sampled_from),
    st.one_of(st.integers(-(2**31), 2**31 - 1), st.sampled_from([0, -1, 7, 8, 1000])),
    st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 0.5, 2.5, 999999.5, 1e-5])),
)
@example("#", "", "", "g", 0, 999999.5)
@settings(max_examples=300)
def test_numbers_are_formatted_as_the_c_library_does(
    flags: str, width: str, precision: str, kind: str, whole: int, real: float
) -> None:
    # NOTE: glibc leaves out zeros that # keeps where digits round up to a power of ten: 1.e+06 for 999999.5.
    digits = {"": 6, ".7": 7}.get(precision, 1)
    assume("#" not in flags or kind not in "gG" or not rounds_up(real, digits))
    form = f"<%{flags}{width}{precision}{kind}>"
    room = ctypes.create_string_buffer(1024)
    value = whole if kind in "diouxX" else real
    handed = ctypes.c_int(whole) if kind in "diouxX" else ctypes.c_double(real)
    c = ctypes.CDLL(None)
    c.snprintf.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p]  # what follows is of any type
    c.snprintf(room, len(room), form.encode(), handed)
    text, taken = formatted(form, value)
    if math.isnan(real) and kind not in "diouxX":  # whose sign C leaves open
        assert re.fullmatch(rb"< *[-+ ]?nan *>", text.lower()) and len(text) >= len("<>") + int(width or 3)
    else:
        assert text == room.value
    assert taken == 1


@pytest.mark.parametrize(
    ("form", "values"), [("%99999d", (1,)), ("%.99999d", (1,)), ("%*d", (99_999, 1)), ("%*d", (-99_999, 1))]
)
def test_a_width_has_an_end(form: str, values: tuple[int, ...]) -> None:
    """A number that means nothing, as a width, must not take the host's memory."""
    assert len(formatted(form, *values)[0]) == 1 << 16


def test_a_bad_pointer_in_printf_is_a_fault() -> None:
    """One to nowhere, to behind an array, and to a text in it that does not end there."""
    source = """extern "C" __global__ void k(const char *p, int *out) {
  printf("%s\\n", threadIdx.x == 3 ? p : "fine"); out[threadIdx.x] = 1; }"""
    device = tw.device("emulator")
    whole, out = device.array(np.full(512, ord("x"), np.uint8)), device.array(np.zeros(32, np.int32))
    for bad in (16, whole.ptr + 512, whole.ptr + 500):
        with pytest.raises(KernelFault, match=r"printf was handed the address 0x(.|\n)*thread \(3, 0, 0\)"):
            tw.Kernel(source, "k", arch="sm_80")(1, 32, [bad, out], device=device)
        assert not out.numpy().any()  # nothing happens behind it
