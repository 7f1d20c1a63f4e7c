"""The model type `linnet` of EleutherAI's lm-eval, which has no entry points: this module registers it and runs lm-eval.

    python -m linnet.lm_eval run --model linnet --model_args model=./Qwen3-0.6B,n_parallel=8 --tasks hellaswag

Arguments of the model are those of linnet.Model, and add_bos_token (False) as lm-eval's own `hf` type has it. Numbers equal
those of `hf` as far as the arithmetic does (numerics=exact: f32)."""
import collections
import os
from typing import List, Tuple

import lm_eval.models  # noqa: F401  registers lm-eval's own types, which are not looked for once one is registered
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from ._answer import Answer
from ._model import Model


@register_model("linnet")
class LinnetLM(TemplateLM):
    """A linnet.Model behind lm-eval's interface."""

    def __init__(self, model="tiny", pretrained=None, add_bos_token=False, max_gen_toks=256, n_parallel=8, batch_size=None,
                 max_batch_size=None, device=None, **options):
        super().__init__()
        del batch_size, max_batch_size  # the engine puts the rows of all answers into its steps by itself
        name = str(pretrained or model)
        if device and ":" not in str(device):
            options["device"] = str(device)
        self._linnet = Model(name, n_parallel=int(n_parallel), **options)
        self._name, self._add_bos, self._most = name, bool(add_bos_token), int(max_gen_toks)
        self._context = options.get("n_ctx") or min(self._linnet.info["n_ctx_max"], 4096)

    @property
    def eot_token_id(self) -> int:
        return self._linnet.info["eos_ids"][0]

    @property
    def prefix_token_id(self) -> int:
        added = self._linnet.tokenize("")  # bos, if the tokenizer adds one
        return added[0] if added else self.eot_token_id

    @property
    def max_length(self) -> int:
        return self._context

    @property
    def tokenizer_name(self) -> str:
        return os.path.basename(self._name.rstrip("/"))

    def apply_chat_template(self, chat_history, add_generation_prompt: bool = True) -> str:
        """Returns the text of a conversation; the last message is continued if no generation prompt is asked for."""
        ids = self._linnet.prompt_ids(list(chat_history), template="chat", continue_last=not add_generation_prompt)
        return self._linnet.detokenize(ids, skip_special=False)

    def chat_template(self, chat_template=False) -> str:
        return self._name if chat_template else ""

    def tok_encode(self, string: str, add_special_tokens=None, **_) -> List[int]:
        special = self._add_bos if add_special_tokens is None else add_special_tokens
        ids = self._linnet.tokenize(string, add_special=special)
        if special and ids[:1] * 2 == ids[:2]:  # the text begins with bos already
            ids = ids[1:]
        return ids

    def _pair(self, before: List[int], after: List[int]) -> Tuple[float, bool]:
        """Returns the sum of the log-probabilities of `after`, and whether each of its ids is the likeliest."""
        ids = (before + after)[-self._context:]
        n = min(len(after), len(ids) - 1)
        logprobs, tops = self._linnet.score_top(ids, 1)
        greedy = all(tops[i - 1][0][0] == ids[i] for i in range(len(ids) - n, len(ids)))
        return sum(logprobs[len(ids) - n:]), greedy

    def _loglikelihood_tokens(self, requests, disable_tqdm: bool = False, **_) -> List[Tuple[float, bool]]:
        found = []
        for texts, before, after in tqdm(requests, disable=disable_tqdm, desc="Running loglikelihood requests"):
            found.append(self._pair(before, after))
            if texts is not None:
                self.cache_hook.add_partial("loglikelihood", texts, found[-1])
        return found

    def loglikelihood_rolling(self, requests, disable_tqdm: bool = False) -> List[float]:
        found = []
        for request in tqdm(requests, disable=disable_tqdm, desc="Running loglikelihood_rolling requests"):
            windows = map(make_disjoint_window, get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0], add_special_tokens=False), prefix_token=self.prefix_token_id,
                max_seq_len=self._context - 1, context_len=1))
            found.append(sum(self._pair(list(before), list(after))[0] for before, after in windows))
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, found[-1])
        return found

    def _begin(self, context: str, how: dict) -> Answer:
        how = dict(how)
        until = how.pop("until", None) or []
        most = int(how.pop("max_gen_toks", how.pop("max_tokens", self._most)))
        sampled = how.pop("do_sample", None)
        temperature = float(how.pop("temperature", 0.0)) if sampled is not False else 0.0
        known = {k: how[k] for k in ("top_p", "top_k", "min_p", "seed") if k in how}
        ids = self.tok_encode(context)[-(self._context - most):]
        stop = [until] if isinstance(until, str) else [u for u in until if u]
        return self._linnet.generate(ids, max_tokens=most, temperature=temperature, stop=stop[:16], **known)

    def generate_until(self, requests, disable_tqdm: bool = False) -> List[str]:
        texts, running = [], collections.deque()
        bar = tqdm(total=len(requests), disable=disable_tqdm, desc="Running generate_until requests")

        def end_first():
            request, answer = running.popleft()
            texts.append(answer.result().text)
            answer.close()
            self.cache_hook.add_partial("generate_until", request.args, texts[-1])
            bar.update(1)

        for request in requests:
            if len(running) >= 64:  # the engine has enough to choose from
                end_first()
            running.append((request, self._begin(*request.args)))
        while running:
            end_first()
        bar.close()
        return texts


def main() -> None:
    """Runs lm-eval's command with the model type registered."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
