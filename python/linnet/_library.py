"""Finds and loads liblinnet, and turns its errors into exceptions."""
import ctypes
import os
import pathlib

from . import _abi


class Error(Exception):
    """An error of the library. `code` is its number, which the command exits with too."""

    code = _abi.LN_EINTERNAL


class UsageError(Error, ValueError):
    """An argument or an option is wrong."""

    code = _abi.LN_EUSAGE


class InvalidError(Error, ValueError):
    """A file or an input has invalid content."""

    code = _abi.LN_EINVALID


class UnsupportedError(Error):
    """Valid, but linnet does not support it."""

    code = _abi.LN_EUNSUPPORTED


class FileError(Error, OSError):
    """The operating system failed: a file is absent, permission is denied, the disk is full."""

    code = _abi.LN_EIO


class OutOfMemoryError(Error, MemoryError):
    """More memory is needed than is available or than was allowed."""

    code = _abi.LN_EMEMORY


class DeviceError(Error):
    """The device does not exist or was lost."""

    code = _abi.LN_EDEVICE


class NumericError(Error, ArithmeticError):
    """NaN or infinity instead of a finite value."""

    code = _abi.LN_ENUMERIC


class ChangedError(Error):
    """A file changed while it was in use."""

    code = _abi.LN_ECHANGED


class CancelledError(Error):
    """The caller asked to stop."""

    code = _abi.LN_ECANCELLED


class InternalError(Error):
    """A defect of linnet."""


_KINDS = {
    kind.code: kind
    for kind in (UsageError, InvalidError, UnsupportedError, FileError, OutOfMemoryError, DeviceError, NumericError,
                 ChangedError, CancelledError, InternalError)
}


def exception(code: int, message: str) -> Error:
    """Returns the exception of a status and its message."""
    return _KINDS.get(code, InternalError)(message)


def _candidates():
    """Yields the names under which the library may be: LINNET_LIBRARY alone if it is set, else the one of this package,
    else that of the system."""
    named = os.environ.get("LINNET_LIBRARY")
    if named:
        yield named
        return
    packed = pathlib.Path(__file__).parent / "lib" / "liblinnet.so.0"
    if packed.exists():
        yield str(packed)
    else:
        yield "liblinnet.so.0"


def _load():
    for name in _candidates():
        try:
            library = ctypes.CDLL(name)  # a CDLL releases the GIL while a function runs
        except OSError as error:
            raise ImportError(f"{name}: {error}. Install linnet's library, or name it in LINNET_LIBRARY") from None
        library.ln_version.restype = ctypes.c_char_p
        found = library.ln_version().decode()
        if found != _abi.VERSION:
            raise ImportError(f"{name}: expected version {_abi.VERSION} of linnet, found {found}. "
                              "Install both from one release, or name the right library in LINNET_LIBRARY")
        for function, (result, arguments) in _abi.FUNCTIONS.items():
            f = getattr(library, function)
            f.restype, f.argtypes = result, arguments
        return library
    raise AssertionError


lib = _load()


def default(kind):
    """Returns a struct of options with its defaults."""
    value = kind()
    lib.ln_set_default(kind.__name__.encode(), ctypes.byref(value), ctypes.sizeof(value))
    return value


def sized(kind):
    """Returns an empty struct that the library fills."""
    value = kind()
    value.size = ctypes.sizeof(value)
    return value


def call(function: str, *arguments) -> None:
    """Calls a function whose last parameter is an ln_error, and raises what it reports."""
    error = _abi.ln_error()
    code = getattr(lib, function)(*arguments, ctypes.byref(error))
    if code != _abi.LN_OK:
        raise exception(code, error.message.decode("utf-8", "replace"))


def text_of(address, n_bytes: int) -> str:
    """Returns the text at an address, of which the library says the length."""
    return ctypes.string_at(address, n_bytes).decode("utf-8", "replace") if address and n_bytes else ""


def address_of(struct, member: str):
    """Returns the address in a text member of a struct. Reading the member itself would end at a zero byte."""
    offset = getattr(type(struct), member).offset
    return ctypes.c_void_p.from_buffer(struct, offset).value


class Callback:
    """Holds the exception of a Python function that the library calls, and raises it when the library has returned."""

    def __init__(self):
        self.raised = None

    def run(self, function, *arguments) -> int:
        """Calls `function`. An exception asks the library to stop."""
        try:
            function(*arguments)
        except BaseException as raised:  # KeyboardInterrupt too: ctypes would print it and go on
            self.raised = raised
            return _abi.LN_ECANCELLED
        return _abi.LN_OK

    def end(self):
        """Raises what was held."""
        if self.raised is not None:
            raise self.raised
