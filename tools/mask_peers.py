#!/usr/bin/env python3
"""Times the masks of allowed tokens: linnet and llguidance, schema by schema in turn, along the same tokens.

usage: mask_peers.py DIR MASKBENCH [--every N] [--rounds N]

DIR contains the model's tokenizer.json; MASKBENCH is the folder maskbench/data of guidance-ai/jsonschemabench.
Needs build/mask_speed (LINNET_BUILD names the folder) and llguidance from PyPI. Each valid value of a schema is
written as json.dumps writes it, with its properties in the schema's order, and tokenised by llguidance. Times
are processor time of the thread; those of llguidance include the call from Python, about 0.002 ms. A schema
counts if both accept it, a text if it matches in both."""
import argparse, json, os, statistics, subprocess, sys, time

BUILD = os.environ.get("LINNET_BUILD", "build")


def ordered(value, schema):
    """The value with the properties of its objects in the order in which the schema lists them."""
    if isinstance(value, dict):
        known = schema.get("properties", {}) if isinstance(schema, dict) else {}
        names = [n for n in known if n in value] + [n for n in value if n not in known]
        return {n: ordered(value[n], known.get(n, {})) for n in names}
    if isinstance(value, list):
        items = schema.get("items", {}) if isinstance(schema, dict) else {}
        return [ordered(v, items) for v in value]
    return value


def quantile(times, part):
    return sorted(times)[min(len(times) - 1, int(part * len(times)))]


class Linnet:
    def __init__(self, folder):
        self.process = subprocess.Popen([os.path.join(BUILD, "mask_speed"), folder], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def times(self, schema, ids):
        """(compile_ms, mask_ms) or None."""
        self.process.stdin.write(json.dumps({"grammar": {"schema": schema}, "ids": ids}) + "\n")
        self.process.stdin.flush()
        found = json.loads(self.process.stdout.readline())
        return (found["compile_ms"], found["mask_ms"]) if found.get("fits") else None


class Llguidance:
    def __init__(self, folder):
        import llguidance
        self.lib = llguidance
        with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
            self.tokenizer = llguidance.LLTokenizer(f.read())
        self.version = llguidance.__version__

    def ids(self, text):
        return self.tokenizer.tokenize_str(text)

    def times(self, schema, ids):
        at = time.thread_time()
        try:
            matcher = self.lib.LLMatcher(self.tokenizer, self.lib.LLMatcher.grammar_from_json_schema(json.dumps(schema)))
        except ValueError:
            return None
        compiled, masks = 1e3 * (time.thread_time() - at), []
        if matcher.is_error():
            return None
        for token in ids:
            at = time.thread_time()
            matcher.compute_bitmask()
            masks.append(1e3 * (time.thread_time() - at))
            if not matcher.consume_token(token):
                return None
        return compiled, masks


def row(name, compiled, masks):
    return (f"| {name} | {quantile(compiled, .5):.2f} / {quantile(compiled, .99):.1f} | {statistics.mean(masks):.3f} | "
            f"{quantile(masks, .5):.3f} | {quantile(masks, .99):.2f} |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("dir")
    p.add_argument("maskbench")
    p.add_argument("--every", type=int, default=40)
    p.add_argument("--rounds", type=int, default=1)
    a = p.parse_args()
    ours, peer = Linnet(a.dir), Llguidance(a.dir)
    compiled, masks, n_schemas = {0: [], 1: []}, {0: [], 1: []}, 0
    for name in sorted(os.listdir(a.maskbench))[::a.every]:
        with open(os.path.join(a.maskbench, name), encoding="utf-8") as f:
            case = json.load(f)
        schema, counted = case["schema"], False
        for test in [t for t in case.get("tests", []) if t.get("valid")][:3]:
            ids = peer.ids(json.dumps(ordered(test["data"], schema), ensure_ascii=False))
            for _ in range(a.rounds):
                both = (ours.times(schema, ids), peer.times(schema, ids))
                if None in both:
                    break
                counted = True
                for k, (c, m) in enumerate(both):
                    compiled[k].append(c)
                    masks[k].extend(m)
        n_schemas += counted
    if not masks[0]:
        sys.exit("mask_peers: no schema that both accept")
    print(f"{n_schemas} schemas, {len(masks[0])} masks each\n")
    print("| | compile p50 / p99, ms | mask mean, ms | p50 | p99 |\n|---|---|---|---|---|")
    print(row("linnet", compiled[0], masks[0]))
    print(row(f"llguidance {peer.version}", compiled[1], masks[1]))


main()
