"""linnet: runs, serves and fine-tunes language models that are stored in Hugging Face layout or in GGUF files.

    import linnet

    with linnet.Model("tiny") as model:
        for piece in model.generate("Once upon a time", max_tokens=40):
            print(piece, end="", flush=True)

Everything is done by the native library: this package has no other dependency, and NumPy arrays are taken and given by the
buffer protocol. docs/python.md has a tour."""
from ._abi import VERSION as __version__
from ._answer import Answer, Event, Result, ToolCall
from ._library import (CancelledError, ChangedError, DeviceError, Error, FileError, InternalError, InvalidError, NumericError,
                       OutOfMemoryError, UnsupportedError, UsageError)
from ._model import Adapter, Class, Model
from ._server import Server, serve
from ._training import Trained, train

__all__ = [
    "Adapter", "Answer", "CancelledError", "ChangedError", "Class", "DeviceError", "Error", "Event", "FileError", "InternalError",
    "InvalidError", "Model", "NumericError", "OutOfMemoryError", "Result", "Server", "ToolCall", "Trained", "UnsupportedError",
    "UsageError", "__version__", "serve", "train",
]
