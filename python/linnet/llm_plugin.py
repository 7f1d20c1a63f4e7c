"""The models of this machine in Simon Willison's command `llm`: `llm -m linnet/tiny "Tell me a story"`.

Installed by an entry point. `linnet` alone is the bundled model; every model that `linnet ls` lists is linnet/NAME, with the hub id
as its name if it has one, and `-o model PATH` opens any other."""
import json
import subprocess
from typing import Dict, Optional

import llm
from pydantic import Field

from ._model import Model
from ._server import command

_open: Dict[str, Model] = {}


def _model(path: str) -> Model:
    """Returns an open model, so that a conversation opens it once."""
    if path not in _open:
        for other in list(_open.values()):  # one at a time: a machine has the memory of one
            other.close()
        _open.clear()
        _open[path] = Model(path)
    return _open[path]


class Linnet(llm.Model):
    """A model of linnet behind llm's interface."""

    can_stream = True
    supports_schema = True
    needs_key: Optional[str] = None

    class Options(llm.Options):
        model: Optional[str] = Field(description="A directory, a GGUF file or a cache id, instead of the model of this name", default=None)
        temperature: Optional[float] = Field(description="0: greedy", ge=0, default=None)
        top_p: Optional[float] = Field(description="Probability mass to sample from", ge=0, le=1, default=None)
        top_k: Optional[int] = Field(description="Candidates to sample from", ge=0, default=None)
        max_tokens: Optional[int] = Field(description="Most tokens of the answer", ge=0, default=None)
        seed: Optional[int] = Field(description="Seed of the sampling", ge=0, default=None)

    def __init__(self, model_id: str, path: str):
        self.model_id, self.path = model_id, path

    def execute(self, prompt, stream, response, conversation=None):
        messages = []
        for earlier in conversation.responses if conversation else ():
            if earlier.prompt.system and not messages:
                messages.append({"role": "system", "content": earlier.prompt.system})
            messages.append({"role": "user", "content": earlier.prompt.prompt})
            messages.append({"role": "assistant", "content": earlier.text_or_raise()})
        if prompt.system and not messages:
            messages.append({"role": "system", "content": prompt.system})
        messages.append({"role": "user", "content": prompt.prompt})
        how = {k: v for k, v in prompt.options.model_dump().items() if v is not None}
        model = _model(how.pop("model", None) or self.path)
        if prompt.schema:
            how["schema"] = prompt.schema
        with model.chat(messages, **how) as answer:
            if stream:
                yield from answer
            result = answer.result()
            if not stream:
                yield result.text
            response.set_usage(input=len(result.prompt_ids), output=result.metrics["generated_tokens"])

    def __str__(self):
        return f"linnet: {self.model_id}"


def _found():
    """Yields (name, path) of the models on this machine."""
    try:
        listed = subprocess.run([command(), "ls", "--json"], capture_output=True, text=True, timeout=60, check=True).stdout
        models = json.loads(listed)
    except (OSError, ValueError, subprocess.SubprocessError):
        return
    for item in models if isinstance(models, list) else models.get("models", []):
        path = item["path"]
        parts = path.split("/")
        hub = [p for p in parts if p.startswith("models--")]
        yield (hub[-1][len("models--"):].replace("--", "/") if hub else parts[-1]), path


@llm.hookimpl
def register_models(register):
    register(Linnet("linnet", "tiny"))
    names = set()
    for name, path in _found():
        if name not in names:
            names.add(name)
            register(Linnet(f"linnet/{name}", path))
