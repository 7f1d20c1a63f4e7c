"""Fine-tuning."""
import ctypes
import dataclasses
import os
from typing import Any, Callable, Dict, Optional, Union

from . import _abi
from ._library import Callback, call, default, lib, sized
from ._options import Held, one_of, options, path_bytes

SCHEDULES = {"constant": 0, "linear": 1, "cosine": 2, "constant_with_warmup": 3, "cosine_with_restarts": 4, "polynomial": 5, "inverse_sqrt": 6,
             "cosine_with_min_lr": 7, "warmup_stable_decay": 8}
OPTIMIZERS = {"adamw": 0, "sgd": 1}
METHODS = {"lora": 0, "full": 1}
LAYOUTS = {"peft": 0, "mlx_lm": 1, "go_mlx": 2}
PREFERENCES = {"none": 0, "dpo": 1, "dpo_norm": 2, "ipo": 3, "orpo": 4}
_WORDS = {"schedule": SCHEDULES, "optimizer": OPTIMIZERS, "method": METHODS, "preference": PREFERENCES,
          "adapter_as": LAYOUTS}
_PATHS = ("data", "valid", "init_adapter", "out")


@dataclasses.dataclass(frozen=True)
class Trained:
    """The end of a run: steps done, the step and loss of the best validation (0 and NaN without one), and whether the run ended
    early, by `early_stop` or by a callback that returned False."""

    steps: int
    best_step: int
    best_loss: float
    stopped_early: bool
    cancelled: bool


def _facts(report) -> Dict[str, Any]:
    facts = {name: getattr(report, name) for name, _ in report._fields_ if name != "size"}
    return {name: value.decode(errors="replace") if isinstance(value, bytes) else value for name, value in facts.items()}


def train(model: Union[str, os.PathLike], data: Union[str, os.PathLike], out: Union[str, os.PathLike], *,
          on_step: Optional[Callable[[Dict[str, Any]], Any]] = None, on_valid: Optional[Callable[[Dict[str, Any]], Any]] = None,
          on_text: Optional[Callable[[Dict[str, Any]], Any]] = None,
          numerics: Optional[str] = None, n_threads: int = 0, memory_bytes: int = 0, **how: Any) -> Trained:
    """Trains a LoRA adapter of a model, or with `method="full"` all of its weights, on a file of samples (docs/training.md) and
    writes the result to the directory `out`.

    The keyword arguments are the members of ln_trainer_options in linnet_train.h: `preference` ("dpo", ...), `rank`, `alpha`, `targets`, `lr`, `batch`,
    `accum`, `epochs`, `steps`, `warmup`, `schedule` ("constant", "linear", "cosine", ...), `valid`, `valid_split`, `resume` and so on;
    `mix` is a list of further files, or of pairs of a file and its weight, and `sample_prompts` a list of texts.
    `on_step`, `on_valid` and `on_text` receive the members of ln_step_report, ln_valid_report and ln_text_report as a dict; False ends the run after a
    checkpoint, and so does an exception (Ctrl-C among them), which is raised when the checkpoint is written."""
    known = {name for name, _ in _abi.ln_trainer_options._fields_} - {"size", "on_ready", "user", "data", "out"}
    unknown = sorted(set(how) - known)
    if unknown:
        raise TypeError(f"unexpected arguments: {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    held = Held(default(_abi.ln_trainer_options))
    for name, value in {**how, "data": data, "out": out}.items():
        if value is None:
            continue
        if name == "mix":
            files = [(x, 1) if isinstance(x, (str, os.PathLike)) else x for x in value]
            held.struct.n_mix = len(files)
            value = (_abi.ln_train_file * len(files))(*[(path_bytes(path), weight) for path, weight in files])
        elif name == "sample_prompts":
            held.struct.n_sample_prompts = len(value)
            value = (ctypes.c_char_p * len(value))(*[text.encode() for text in value])
        elif name in _PATHS:
            value = path_bytes(value)
        elif name in _WORDS:
            value = one_of(name, _WORDS[name], value)
        elif isinstance(value, str):
            value = value.encode()
        setattr(held.struct, name, value)
    opened = options({"numerics": numerics, "n_threads": n_threads, "memory_bytes": memory_bytes})
    state = Callback()

    def hand(function):
        def on_report(_user, report, _error):
            answer = []
            status = state.run(lambda: answer.append(function(_facts(report[0])) if function else None))
            return _abi.LN_ECANCELLED if answer == [False] else status

        return on_report

    events = sized(_abi.ln_trainer_events)
    fields = dict(_abi.ln_trainer_events._fields_)
    events.on_step, events.on_valid = fields["on_step"](hand(on_step)), fields["on_valid"](hand(on_valid))
    events.on_text = fields["on_text"](hand(on_text))
    handle, trainer = ctypes.c_void_p(), ctypes.c_void_p()
    result = sized(_abi.ln_trainer_result)
    try:
        call("ln_model_open", ctypes.byref(handle), path_bytes(model), ctypes.byref(opened.struct))
        call("ln_trainer_new", ctypes.byref(trainer), handle, ctypes.byref(opened.struct), ctypes.byref(held.struct))
        call("ln_trainer_run", trainer, ctypes.byref(events), ctypes.byref(result))
    finally:
        lib.ln_trainer_free(ctypes.byref(trainer))
        lib.ln_model_close(ctypes.byref(handle))
    state.end()
    return Trained(**_facts(result))
