#!/usr/bin/env python3
"""Judges linnet's forms by public suites of JSON schemas: what is refused, accepted wrongly, or rejected wrongly.

usage: judge_schemas.py suite [--open] [--walks N] [--list]
       judge_schemas.py maskbench DIR [--every N] [--open] [--walks N] [--list]

suite: JSON-Schema-Test-Suite, draft 2020-12, which is in the source distribution of PyPI's jsonschema; pip
fetches it into the temporary folder, and without a network the program says so and ends with code 77.
maskbench: the folder maskbench/data of guidance-ai/jsonschemabench.

A value is judged as json.dumps writes it, its properties in any order: a form has one. A value that is valid
and is accepted as the standard reads its schema ("open": true) only, as one with names that the schema does not
list, is counted apart; so is one of format.json, whose formats are annotations there and held here. Random walks are texts of the form; each must parse and be valid. Needs build/form_judge
(LINNET_BUILD names the folder)."""
import argparse, json, os, random, re, subprocess, sys, tarfile, tempfile, time

BUILD = os.environ.get("LINNET_BUILD", "build")
JSONSCHEMA = "jsonschema==4.26.0"


def suite():
    """Yields (name, schema, [(value, valid)]) of the test suite."""
    folder = os.path.join(tempfile.gettempdir(), "linnet-schema-suite")
    if not os.path.isdir(folder) or not os.listdir(folder):
        got = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-binary", ":all:", "--no-deps",
                              "-d", folder, JSONSCHEMA], capture_output=True, text=True)
        if got.returncode != 0:
            print("judge_schemas: SKIPPED: pip cannot fetch", JSONSCHEMA, got.stderr[-300:])
            sys.exit(77)
    name = [n for n in os.listdir(folder) if n.endswith(".tar.gz")][0]
    with tarfile.open(os.path.join(folder, name)) as tar:
        for member in sorted(tar.getnames()):
            found = re.search(r"json/tests/draft2020-12/(.*\.json)$", member)
            if found:
                for i, group in enumerate(json.load(tar.extractfile(member))):
                    tests = [(t["data"], t["valid"]) for t in group["tests"]]
                    yield f"{found.group(1)}[{i}] {group['description']}", group["schema"], tests


def maskbench(folder, every):
    """Yields the same of MaskBench."""
    for i, name in enumerate(sorted(os.listdir(folder))):
        if i % every == 0 and name.endswith(".json"):
            with open(os.path.join(folder, name)) as f:
                case = json.load(f)
            yield name, case["schema"], [(t["data"], t["valid"]) for t in case["tests"]]


def tree(value):
    """A value as form_judge reads it."""
    if isinstance(value, dict):
        return ["{"] + [x for n, v in value.items() for x in (json.dumps(n, ensure_ascii=False), tree(v))]
    if isinstance(value, list):
        return ["["] + [tree(v) for v in value]
    return json.dumps(value, ensure_ascii=False)


class Judge:
    def __init__(self):
        self.process = subprocess.Popen([os.path.join(BUILD, "form_judge")], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def ask(self, schema, opened, values, walks):
        form = {"schema": schema, "open": True} if opened else {"schema": schema}
        line = {"form": json.dumps(form), "values": [tree(v) for v in values], "walks": walks}
        self.process.stdin.write(json.dumps(line).encode("utf-8", "surrogatepass") + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def main():
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=["suite", "maskbench"])
    p.add_argument("folder", nargs="?")
    p.add_argument("--every", type=int, default=1)
    p.add_argument("--open", action="store_true")
    p.add_argument("--walks", type=int, default=0)
    p.add_argument("--list", action="store_true")
    p.add_argument("--only", default="")
    a = p.parse_args()
    try:
        import jsonschema
    except ImportError:
        print("judge_schemas: SKIPPED: the Python package jsonschema is not installed")
        sys.exit(77)
    judge = Judge()
    n = dict.fromkeys(["schemas", "accepted", "valid", "invalid", "wrong_accepts", "wrong_rejects", "extra_names", "formats",
                       "faults", "walks", "bad_walks", "no_end"], 0)
    refused, compile_ms = {}, []
    cases = suite() if a.what == "suite" else maskbench(a.folder, a.every)
    for name, schema, tests in cases:
        if a.only and not re.search(a.only, name):
            continue
        n["schemas"] += 1
        said = judge.ask(schema, a.open, [v for v, _ in tests], a.walks)
        compile_ms.append(said.get("compile_ms", 0))
        if "error" in said:
            why = re.sub(r'"[^"]*"|\'[^\']*\'|\d+', "_", said["error"])
            why = re.sub(r"^[^:]*\.([\w$]+):", r"\1:", why)[:100]
            refused.setdefault(why, []).append(name)
            if a.list:
                print("REFUSED", name, said["error"])
            continue
        n["accepted"] += 1
        for (value, valid), verdict in zip(tests, said["values"]):
            n["valid" if valid else "invalid"] += 1
            if str(verdict).startswith("FAULT: "):
                n["faults"] += 1
                print("FAULT", name, verdict)
            elif (verdict is True) != valid:
                kind = "wrong_rejects" if valid else "wrong_accepts"
                if valid and name.startswith("format.json"):
                    kind = "formats"
                if valid and not a.open and judge.ask(schema, True, [value], 0).get("values") == [True]:
                    kind = "extra_names"
                n[kind] += 1
                if a.list or kind == "wrong_accepts":
                    print(kind.upper(), name, json.dumps(value, ensure_ascii=False)[:200], "|", verdict)
        if not a.walks:
            continue
        try:
            validator = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(schema)
            for text in said["walks"]:
                n["walks"] += 1
                if text is None:
                    n["no_end"] += 1
                elif "\ufeff" in text and not text.startswith("FAULT: "):
                    pass  # blank for ECMA-262's \\s, not for Python's
                elif text.startswith("FAULT: ") or not validator.is_valid(json.loads(text)):
                    n["bad_walks"] += 1
                    print("BAD WALK", name, text[:300])
        except Exception as e:  # a reference that jsonschema cannot resolve, or a text that does not parse
            n["bad_walks"] += isinstance(e, json.JSONDecodeError)
            print("WALK", name, type(e).__name__, str(e)[:150])
    for why, names in sorted(refused.items(), key=lambda x: -len(x[1])):
        print(f"{len(names):6} {why}    ({names[0]})")
    compile_ms.sort()
    k = len(compile_ms)
    print(json.dumps(n))
    print(f"compile ms: p50 {compile_ms[k // 2]:.3f}, p99 {compile_ms[k * 99 // 100]:.3f}, most {compile_ms[-1]:.1f}")
    if n["accepted"] and n["schemas"]:
        print(f"accepted {100 * n['accepted'] / n['schemas']:.1f} % of schemas; wrong rejects "
              f"{100 * n['wrong_rejects'] / max(1, n['valid']):.2f} % of valid values")
    sys.exit(1 if n["wrong_accepts"] + n["faults"] + n["bad_walks"] else 0)


if __name__ == "__main__":
    main()
