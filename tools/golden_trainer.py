#!/usr/bin/env python3
"""Makes tests/golden/trainer: for small models an initial adapter, rows of training data, and what peft and torch make of them in 12 steps of
AdamW: losses, and the final adapter; and of all weights (full.*): losses, and every SPARSE-th number of each tensor. With SGD (sgd.*) and of some layers
(layers/, layers.*) losses, and every SPARSE_PAIRS-th number of the adapter. Of DoRA (dora/,
dora.*), of adapters of the embedding and the head (tables/, tables.*), of both trained as a whole (whole/, whole.*), of added tokens (tokens/, tokens.*), and of models with recurrent layers (HYBRIDS, lora.*) likewise. Of preferences (preferences.*): for each
loss of PREFERENCES what trl.DPOTrainer and trl.experimental.orpo.ORPOTrainer (TRL 1.16) make of pairs.jsonl. test_trainer, test_full_training and
test_preferences compare `ln_trainer_*` with it.

usage: python tools/golden_trainer.py [OUT]           in an environment that has torch, transformers, peft and trl
       python tools/golden_trainer.py --full [OUT]     full.* alone
       python tools/golden_trainer.py --preferences [OUT]   preferences.* alone; --sgd, --layers, --dora, --tables, --whole, --tokens, --hybrids likewise
       python tools/golden_trainer.py --check MODEL   trains MODEL with peft and with build/linnet, and prints the differences
"""
import json
import os
import subprocess
import sys
import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from transformers.trainer_pt_utils import get_parameter_names

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
MODELS = ["llama-plain-f32", "qwen2-f32", "qwen3-bias-f32", "gemma3-text-f32"]
FULL_MODELS = MODELS + ["families/glm4-base-f32"]
STEPS, BATCH, LR, DECAY = 12, 3, 1e-3, 0.01
SPARSE = 16
SGD_LR, MOMENTUM, LAYERS = 0.1, 0.9, [1]
TABLES = ["v_proj", "embed_tokens", "lm_head"]
WHOLE = ["embed_tokens", "lm_head"]
HYBRIDS = {"qwen3_5_text-interval-f16": ["q_proj", "in_proj_qkv", "in_proj_z", "in_proj_b", "out_proj", "down_proj"],
           "qwen3_next-list-bf16": ["q_proj", "o_proj", "in_proj_qkvz", "in_proj_ba", "out_proj"],
           "lfm2-bias-bf16": ["q_proj", "in_proj", "out_proj", "w2"]}
PREFERENCES, BETA, SPARSE_PAIRS = ["dpo", "dpo-norm", "ipo", "orpo"], 0.1, 4


def make_rows(vocab, n=7, seed=0):
    g = torch.Generator().manual_seed(seed)
    rows = []
    for i in range(n):
        size = int(torch.randint(4, 20, (1,), generator=g))
        ids = torch.randint(0, vocab, (size,), generator=g).tolist()
        mask = [int(torch.rand(1, generator=g) < 0.6) for _ in ids]
        mask[-1] = 1
        rows.append({"ids": ids, "mask": mask})
    return rows


def make_adapter(model, path, seed, layers=None, dora=False, targets=("q_proj", "v_proj", "down_proj"), **how):
    torch.manual_seed(seed)
    m = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=6, target_modules=list(targets), layers_to_transform=layers,
                                         use_dora=dora, **how))
    with torch.no_grad():
        for name, p in m.named_parameters():
            if "lora_B" in name or "lora_embedding" in name:
                p.copy_(torch.randn_like(p) * 0.05)
            if "lora_magnitude" in name:
                p.mul_(1 + torch.randn_like(p) * 0.05)
    m.save_pretrained(path, save_embedding_layers=False)
    for f in os.listdir(path):
        if f not in ("adapter_config.json", "adapter_model.safetensors"):
            os.remove(os.path.join(path, f))
    name = os.path.join(path, "adapter_config.json")
    config = json.load(open(name))
    config["base_model_name_or_path"] = ""
    config.pop("peft_version", None)
    json.dump(config, open(name, "w"), indent=1, sort_keys=True)


def train(model_dir, adapter, rows, sgd=False):
    """The losses of the steps, and the final adapter by name."""
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto", attn_implementation="eager").float()
    m = PeftModel.from_pretrained(model, adapter, is_trainable=True)
    params = [p for p in m.parameters() if p.requires_grad]
    groups = [{"params": params, "weight_decay": DECAY}]
    losses = steps(m, groups, rows, torch.optim.SGD(groups, lr=SGD_LR, momentum=MOMENTUM) if sgd else None)
    state = {n.replace(".modules_to_save", "").replace(".default", "").replace("_vector.weight", "_vector"): p.detach().clone() for n, p in m.named_parameters() if p.requires_grad}
    return losses, state


def train_all(model_dir, rows):
    """The same of all weights; those that decay are what transformers' Trainer takes."""
    m = AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto", attn_implementation="eager").float()
    norms = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]
    decays = set(get_parameter_names(m, [torch.nn.LayerNorm], norms))
    named = dict(m.named_parameters())
    groups = [{"params": [p for n, p in named.items() if (n in decays) == wanted], "weight_decay": DECAY if wanted else 0.0} for wanted in (True, False)]
    losses = steps(m, groups, rows)
    return losses, {n: p.detach() for n, p in named.items()}


def steps(m, groups, rows, opt=None):
    m.train()
    opt = opt or torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.999), eps=1e-8)
    losses, at = [], 0
    for _ in range(STEPS):
        total, count = 0.0, 0
        opt.zero_grad()
        batch = [rows[(at + i) % len(rows)] for i in range(BATCH)]
        at += BATCH
        for row in batch:
            ids = torch.tensor([row["ids"]])
            logits = m(ids).logits[0, :-1].float()
            keep = torch.tensor(row["mask"][1:], dtype=torch.bool)
            total = total + torch.nn.functional.cross_entropy(logits[keep], ids[0, 1:][keep], reduction="sum")
            count += int(keep.sum())
        loss = total / count
        loss.backward()
        opt.step()
        losses.append(float(loss.detach()))
    return losses


def compare(losses, state, lines, out):
    got = load_file(os.path.join(out, "adapter_model.safetensors"))
    assert sorted(got) == sorted(state), (sorted(got)[:3], sorted(state)[:3])
    return max(abs(a["loss"] - b) / abs(b) for a, b in zip(lines, losses)), got


def check(model_dir):
    vocab = json.load(open(os.path.join(model_dir, "config.json")))
    vocab = vocab.get("vocab_size") or vocab["text_config"]["vocab_size"]
    with tempfile.TemporaryDirectory() as tmp:
        init, data, out = (os.path.join(tmp, x) for x in ("init", "rows.jsonl", "out"))
        make_adapter(AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto").float(), init, 1)
        rows = make_rows(vocab)
        with open(data, "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in rows)
        losses, state = train(model_dir, init, rows)
        linnet = os.environ.get("LINNET", os.path.join(ROOT, "build/linnet"))
        text = subprocess.run([linnet, "train", model_dir, "--init-adapter", init, "--data", data, "-o", out, "--no-shuffle", "--batch", str(BATCH), "--lr", str(LR),
                               "--weight-decay", str(DECAY), "--schedule", "constant", "--warmup", "0", "--clip", "0", "--valid-split", "0", "--steps", str(STEPS),
                               "--numerics", "exact", "--json"], check=True, capture_output=True, text=True).stdout
        lines = [json.loads(x) for x in text.splitlines()][:-1]
        worst, got = compare(losses, state, lines, out)
        first = load_file(os.path.join(init, "adapter_model.safetensors"))
        a = torch.cat([(got[n] - first[n]).flatten() for n in sorted(got)])
        b = torch.cat([(state[n] - first[n]).flatten() for n in sorted(got)])
        print(f"{os.path.basename(model_dir)}: losses within {worst:.1e} (allowed 1e-4), moved with cosine {float(torch.nn.functional.cosine_similarity(a, b, 0)):.6f} "
              "(allowed 0.999)")


def make_pairs(vocab, seed):
    g = torch.Generator().manual_seed(seed)

    def ids(least, most):
        return torch.randint(0, vocab, (int(torch.randint(least, most, (1,), generator=g)),), generator=g).tolist()
    return [{"prompt_ids": ids(2, 7), "chosen_ids": ids(2, 10), "rejected_ids": ids(2, 10)} for _ in range(7)]


def in_order(trainer_class, losses):
    """A trainer of TRL that takes ids and the samples in their order, and adds the loss of each step to `losses`."""
    class Trainer(trainer_class):
        def _prepare_dataset(self, dataset, *_):
            return dataset

        def tokenize_row(self, row, **_):
            out = {}
            for which in ("chosen", "rejected"):
                ids = row["prompt_ids"] + row[which + "_ids"]
                out[which + "_input_ids"], out[which + "_attention_mask"] = ids, [1] * len(ids)
                out[which + "_labels"] = [-100] * len(row["prompt_ids"]) + row[which + "_ids"]
            return out

        def _get_train_sampler(self, dataset=None):
            return torch.utils.data.SequentialSampler(dataset if dataset is not None else self.train_dataset)

        def compute_loss(self, *args, **kwargs):
            loss = super().compute_loss(*args, **kwargs)
            losses.append(float((loss[0] if isinstance(loss, tuple) else loss).detach()))
            return loss
    return Trainer


def train_pairs(model_dir, adapter, pairs, kind):
    """The losses of TRL's trainer, and the final adapter by name."""
    from datasets import Dataset
    from trl import DPOConfig, DPOTrainer
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto", attn_implementation="eager").float()
    m = PeftModel.from_pretrained(model, adapter, is_trainable=True)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({str(i): i for i in range(model.config.vocab_size)})), pad_token="0", eos_token="1")
    text = {"prompt": "2", "chosen": "3", "rejected": "4"}  # which the ids replace
    data = Dataset.from_list([{**pairs[i % len(pairs)], **text} for i in range(STEPS * BATCH)])
    losses = []
    with tempfile.TemporaryDirectory() as tmp:
        how = dict(output_dir=tmp, per_device_train_batch_size=BATCH, num_train_epochs=1, learning_rate=LR, weight_decay=DECAY, lr_scheduler_type="constant", max_grad_norm=0,
                   beta=BETA, report_to=[], save_strategy="no", logging_strategy="no", gradient_checkpointing=False, bf16=False, use_cpu=True, optim="adamw_torch",
                   remove_unused_columns=False, max_length=64, disable_tqdm=True)
        if kind == "orpo":
            trainer = in_order(ORPOTrainer, losses)(model=m, args=ORPOConfig(**how), train_dataset=data, processing_class=tokenizer)
        else:
            loss = {"dpo": "sigmoid", "dpo-norm": "sigmoid_norm", "ipo": "ipo"}[kind]
            trainer = in_order(DPOTrainer, losses)(model=m, args=DPOConfig(loss_type=[loss], **how), train_dataset=data, processing_class=tokenizer)
        trainer.train()
    assert len(losses) == STEPS
    named = [(n, p) for n, p in m.named_parameters() if ".default." in n]
    return losses, {n.replace(".default", ""): p.detach() for n, p in named}


def make_preferences(out):
    for i, name in enumerate(MODELS):
        model_dir, path = os.path.join(ROOT, "tests/golden", name), os.path.join(out, name)
        pairs = make_pairs(json.load(open(os.path.join(model_dir, "config.json")))["vocab_size"], i)
        with open(os.path.join(path, "pairs.jsonl"), "w") as f:
            f.writelines(json.dumps(p) + "\n" for p in pairs)
        losses, numbers = {}, {}
        for kind in PREFERENCES:
            losses[kind], state = train_pairs(model_dir, os.path.join(path, "init"), pairs, kind)
            numbers.update({f"{kind}.{n}": p.flatten()[::SPARSE_PAIRS].clone() for n, p in state.items()})
            print(name, kind, losses[kind][0], losses[kind][-1], flush=True)
        save_file(numbers, os.path.join(path, "preferences.safetensors"))
        json.dump(losses, open(os.path.join(path, "preferences.json"), "w"))


def make_variant(out, name, **how):
    """NAME.json and NAME.safetensors of each model; of `layers` and `dora`, from an adapter of its own."""
    for i, model in enumerate(MODELS):
        model_dir, path = os.path.join(ROOT, "tests/golden", model), os.path.join(out, model)
        init = os.path.join(path, "init")
        if name == "layers":
            init = os.path.join(path, "layers")
            make_adapter(AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto").float(), init, i, LAYERS)
        if name == "dora":
            init = os.path.join(path, "dora")
            make_adapter(AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto").float(), init, i, dora=True)
        if name == "tables":
            init = os.path.join(path, "tables")
            make_adapter(AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto").float(), init, i, targets=TABLES)
        if name == "whole":
            init = os.path.join(path, "whole")
            make_adapter(AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto").float(), init, i, targets=["q_proj", "down_proj"], modules_to_save=WHOLE)
        losses, state = train(model_dir, init, [json.loads(x) for x in open(os.path.join(path, "rows.jsonl"))], **how)
        save_file({n: p.flatten()[::SPARSE_PAIRS].clone() for n, p in state.items()}, os.path.join(path, name + ".safetensors"))
        json.dump(losses, open(os.path.join(path, name + ".json"), "w"))
        print(model, name, losses[0], losses[-1])


def make_sgd(out):
    make_variant(out, "sgd", sgd=True)


def make_layers(out):
    make_variant(out, "layers")


def make_dora(out):
    make_variant(out, "dora")


def make_tables(out):
    make_variant(out, "tables")


def make_whole(out):
    make_variant(out, "whole")


def make_hybrids(out):
    """Of models with recurrent layers."""
    for i, (name, targets) in enumerate(HYBRIDS.items()):
        model_dir, path = os.path.join(ROOT, "tests/golden/families", name), os.path.join(out, name)
        os.makedirs(path, exist_ok=True)
        model = AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto").float()
        init = os.path.join(path, "init")
        make_adapter(model, init, i, targets=targets)
        rows = make_rows(model.config.get_text_config().vocab_size, seed=i)
        with open(os.path.join(path, "rows.jsonl"), "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in rows)
        losses, state = train(model_dir, init, rows)
        save_file({n: p.flatten()[::SPARSE_PAIRS].clone() for n, p in state.items()}, os.path.join(path, "lora.safetensors"))
        json.dump(losses, open(os.path.join(path, "lora.json"), "w"))
        print(name, losses[0], losses[-1])


def grown(model_dir):
    """A model whose vocabulary has two more tokens, with rows that are the mean of the others."""
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto", attn_implementation="eager").float()
    old = model.config.vocab_size
    tables = [x.weight.detach().double().mean(0).float() for x in (model.get_input_embeddings(), model.get_output_embeddings())]
    model.resize_token_embeddings(old + 2, mean_resizing=False)
    with torch.no_grad():
        for x, row in zip((model.get_input_embeddings(), model.get_output_embeddings()), tables):
            x.weight[old:] = row
    return model, [old, old + 1]


def make_tokens(out):
    """Rows of two tokens by which the vocabulary grows, in two of three samples."""
    for i, name in enumerate(MODELS):
        model_dir, path = os.path.join(ROOT, "tests/golden", name), os.path.join(out, name)
        model, new = grown(model_dir)
        init = os.path.join(path, "tokens")
        ids = {"embed_tokens": new} if model.config.tie_word_embeddings else {"embed_tokens": new, "lm_head": new}
        make_adapter(model, init, i, targets=["v_proj"], trainable_token_indices=ids)
        rows = [json.loads(x) for x in open(os.path.join(path, "rows.jsonl"))]
        for k, row in enumerate(rows):
            if k % 3:
                row["ids"][1 + k % 2], row["ids"][-1] = new[k % 2], new[1 - k % 2]
        with open(os.path.join(path, "tokens.jsonl"), "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in rows)
        m = PeftModel.from_pretrained(grown(model_dir)[0], init, is_trainable=True)
        losses = steps(m, [{"params": [p for p in m.parameters() if p.requires_grad], "weight_decay": DECAY}], rows)
        state = {n.replace(".default", ""): p.detach().clone() for n, p in m.named_parameters() if p.requires_grad}
        save_file({n: p.flatten()[::SPARSE_PAIRS].clone() for n, p in state.items()}, os.path.join(path, "tokens.safetensors"))
        json.dump(losses, open(os.path.join(path, "tokens.json"), "w"))
        print(name, "tokens", losses[0], losses[-1])


def make_full(out):
    for i, name in enumerate(FULL_MODELS):
        model_dir = os.path.join(ROOT, "tests/golden", name)
        path = os.path.join(out, os.path.basename(name))
        os.makedirs(path, exist_ok=True)
        data = os.path.join(path, "rows.jsonl")
        if not os.path.exists(data):
            vocab = json.load(open(os.path.join(model_dir, "config.json")))["vocab_size"]
            with open(data, "w") as f:
                f.writelines(json.dumps(r) + "\n" for r in make_rows(vocab, seed=i))
        losses, state = train_all(model_dir, [json.loads(x) for x in open(data)])
        save_file({n: p.flatten()[::SPARSE].clone() for n, p in state.items()}, os.path.join(path, "full.safetensors"))
        json.dump(losses, open(os.path.join(path, "full.json"), "w"))
        print(name, "full", losses[0], losses[-1])


def make(out):
    for i, name in enumerate(MODELS):
        model_dir = os.path.join(ROOT, "tests/golden", name)
        path = os.path.join(out, name)
        os.makedirs(path, exist_ok=True)
        model = AutoModelForCausalLM.from_pretrained(model_dir, dtype="auto").float()
        make_adapter(model, os.path.join(path, "init"), i)
        rows = make_rows(model.config.vocab_size, seed=i)
        with open(os.path.join(path, "rows.jsonl"), "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in rows)
        losses, state = train(model_dir, os.path.join(path, "init"), rows)
        save_file(state, os.path.join(path, "final.safetensors"))
        json.dump(losses, open(os.path.join(path, "losses.json"), "w"))
        print(name, losses[0], losses[-1])


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "--check":
        check(sys.argv[2])
    else:
        only = [x for x in sys.argv[1:] if x.startswith("--")]
        rest = [x for x in sys.argv[1:] if not x.startswith("--")]
        to = rest[0] if rest else os.path.join(ROOT, "tests/golden/trainer")
        for flag, work in [("--adapters", make), ("--full", make_full), ("--preferences", make_preferences), ("--sgd", make_sgd), ("--layers", make_layers), ("--dora", make_dora), ("--tables", make_tables), ("--whole", make_whole), ("--hybrids", make_hybrids), ("--tokens", make_tokens)]:
            if not only or flag in only:
                work(to)
