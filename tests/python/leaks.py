"""Opens a model N times, and asks AddressSanitizer whether the module or the library has lost memory. Run by leaks.sh.

usage: leaks.py MODEL N        exit 1: something was lost; before the N opens one loses a model on purpose in a process of its own, which must be found"""
import ctypes
import gc
import os
import sys

import linnet


def once(path, lose=False):
    model = linnet.Model(path, n_ctx=256)
    model.generate("Once", max_tokens=2).result()
    model.embed(["a"])
    model.tokenize("Once upon a time")
    if lose:
        model._model = ctypes.c_void_p()  # close() has nothing to close then
    model.close()


def lost():
    """Whether memory is lost now; AddressSanitizer writes what and where to stderr."""
    gc.collect()
    return bool(ctypes.CDLL(None).__lsan_do_recoverable_leak_check())


def finds_a_loss(path):
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        once(path, lose=True)
        os._exit(17 if lost() else 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17


if __name__ == "__main__":
    if not finds_a_loss(sys.argv[1]):
        sys.exit("leaks: a model that was lost on purpose was not found")
    for i in range(int(sys.argv[2])):
        once(sys.argv[1])
    if lost():
        sys.exit(f"leaks: {sys.argv[2]} opens lost memory")
    print(f"[  PASSED  ] 1 test(s). {sys.argv[2]} opens lost nothing", flush=True)
    os._exit(0)  # what Python itself holds at its end is not asked about
