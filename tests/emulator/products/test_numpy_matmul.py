"""NumPy's own tests of ``matmul``, as they come with the installed NumPy, on ``tw.matmul``.

What no kernel multiplies is refused, which is checked each time that one of NumPy's tests tries it; NumPy's answer
is then what that test goes on with.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from typing import Any

import numpy as np
import pytest

import tilewise as tw
from tilewise.errors import ArgumentError

# ── what is excluded, and why ────────────────────────────────────────────────────────────────────────────

# Kinds of elements (NumPy's letters) that no kernel multiplies: refused wherever they come up.
REFUSED = {
    "O": "Python objects: their arithmetic is their own",
    "V": "structures: they are no numbers",
    "g": "long double: no GPU has it",
}
# Those that are refused beside other integers; with floating-point numbers they are converted.
INTEGERS = {
    "bool": "no kernel multiplies them",
    "uint32": "nor these: int32 and int64 are multiplied",
    "uint64": "nor these",
}
# Errors that say the same in other words: our message, NumPy's class and words.
WORDS: dict[str, tuple[type[Exception], str]] = {
    "out must have a type that": (TypeError, "Cannot cast ufunc 'matmul' output"),
    "out must have shape": (ValueError, "non-broadcastable output operand"),
}
# Tests that are not run at all.
EXCLUDED = {
    "test_matmul_axes": "axes= belongs to NumPy's generalised ufuncs; tw.matmul takes transposed views instead",
    "TestMatmulOperator": "the @ of two ndarrays is NumPy's own; the tests that it shares are run",
    "TestMatmulInplace": "so is @=",
}
# Of NumPy's floating-point types the three that kernels multiply. Where its tests multiply numbers they leave out
# the first type, which in their own list is bool: so the first is named twice.
TYPES = "eefd"

# ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_CORE = "numpy._core" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else "numpy.core"


def _upstream(name: str) -> Any:
    """A module of NumPy's tests; some distributions leave all of them out."""
    package = name.rpartition(".")[0]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"this NumPy was installed without {package}", allow_module_level=True)
    with pytest.MonkeyPatch.context() as patch:  # they have marks that are none of ours
        patch.setattr(pytest, "mark", type(pytest.mark)(_ispytest=True))
        return importlib.import_module(name)


MULTIARRAY = _upstream(f"{_CORE}.tests.test_multiarray")
LINALG = _upstream("numpy.linalg.tests.test_linalg")
NUMPYS = np.matmul


def is_excluded(a: Any, b: Any) -> bool:
    """Whether the tables exclude a product of elements like these."""
    types = [np.asarray(one).dtype for one in (a, b)]
    kinds = {"g" if one in (np.longdouble, np.clongdouble) else one.kind for one in types}
    return bool(kinds & REFUSED.keys()) or (kinds <= {*"biu"} and any(one.name in INTEGERS for one in types))


def matmul(a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
    """``tw.matmul`` in the place of NumPy's."""
    if is_excluded(a, b):
        with pytest.raises(ArgumentError):
            tw.matmul(a, b, *args, **kwargs)
        return NUMPYS(a, b, *args, **kwargs)
    try:
        return tw.matmul(a, b, *args, **kwargs)
    except ArgumentError as error:
        for ours, (kind, numpys) in WORDS.items():
            if re.match(ours, str(error)):
                raise kind(numpys) from error
        raise


@pytest.fixture(autouse=True)
def _ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "matmul", matmul)
    monkeypatch.setattr(LINALG, "matmul", matmul)


class TestMatmul(MULTIARRAY.TestMatmul):  # type: ignore[misc, name-defined]
    types = TYPES
    matmul = staticmethod(matmul)


# Those of numpy.linalg that check its results by multiplying, but for the ones that go through hundreds of strides.
TestQR = LINALG.TestQR
TestCholesky = pytest.mark.few(4)(LINALG.TestCholesky)
TestMatrixPower = LINALG.TestMatrixPower


@pytest.mark.parametrize("name", EXCLUDED)
def test_what_is_excluded_is_there(name: str) -> None:
    assert hasattr(MULTIARRAY, name)
