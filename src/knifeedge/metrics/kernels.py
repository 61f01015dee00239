"""What the compiled kernels share: the decorator, two bit operations, a word when they compile.

A kernel is a plain function of arrays that only loops; numba compiles it at its first call and
keeps the machine code beside the source, or in the user's cache folder, for later processes.
Only where that cache has nothing does a first call take seconds, and then it says so.

By itself numba compiles again only if the file of the kernel that is called has changed. A kernel
is also made of helpers and constants from other files, so that here it does if any file of this
package has.
"""

import contextlib
import functools
import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit, types
from numba.core import event
from numba.extending import intrinsic

_Function = TypeVar("_Function", bound=Callable[..., Any])
_LOGGER = logging.getLogger("knifeedge")
_MESSAGE = "compiling the evaluation kernels: some 15 s, once; later runs find them in the cache"


def kernel(function: _Function) -> _Function:
    """Compile `function` with numba at its first call, cached between processes."""
    _Listener.listen()
    try:
        compiled = njit(cache=True, nogil=True)(function)
    except RuntimeError:  # numba finds no folder it may write to: every process compiles
        return cast(_Function, njit(nogil=True)(function))
    # What numba compares before it takes machine code from its cache; a private name of numba's,
    # without which it compares its own digest of one file.
    with contextlib.suppress(AttributeError):
        index = compiled._cache._cache_file
        index._source_stamp = (index._source_stamp, _digest())
    return cast(_Function, compiled)


def inlined(function: _Function) -> _Function:
    """Mark a small helper of kernels, copied into each caller: a call costs more than its work."""
    return cast(_Function, njit(inline="always")(function))


def on_compile(announce: Callable[[str], None] | None) -> None:
    """Choose who is told, once a process, that kernels are being compiled.

    Args:
        announce: takes one line of text; None restores the default, a warning of the logger
            "knifeedge".

    Example:
        >>> on_compile(print)
        >>> on_compile(None)
    """
    _Listener.announce = announce or _LOGGER.warning
    _Listener.told = False


@functools.cache
def _digest() -> str:
    """Of all sources of this package; it takes 1 ms a process."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


class _Listener(event.Listener):  # type: ignore[misc]
    """Hears of every compilation, which numba starts only after its cache gave nothing."""

    announce: Callable[[str], None] = _LOGGER.warning
    told = False
    registered = False

    @classmethod
    def listen(cls) -> None:
        if not cls.registered:
            cls.registered = True
            event.register("numba:compile", cls())

    def on_start(self, event: Any) -> None:
        ours = event.data["dispatcher"].py_func.__module__.startswith(__package__)
        if ours and not _Listener.told:
            _Listener.told = True
            _Listener.announce(_MESSAGE)

    def on_end(self, event: Any) -> None:
        pass


def _lowest_bit(context: Any, word: Any) -> Any:
    def generate(target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], target.get_constant(types.boolean, True))

    return types.uint64(types.uint64), generate


def _count_bits(context: Any, word: Any) -> Any:
    def generate(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


Int = int | np.int64
Word = np.uint64
# One machine instruction each, which numba does not offer by itself.
lowest_bit: Callable[[Word], Word] = intrinsic(_lowest_bit)  # position; undefined for 0
count_bits: Callable[[Word], Word] = intrinsic(_count_bits)
