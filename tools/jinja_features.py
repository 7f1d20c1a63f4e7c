#!/usr/bin/env python3
"""Templates for features that random programs seldom use, with the results of Jinja2, configured as in transformers.

  tools/jinja_features.py > tests/jinja/features.jsonl        the recorded cases of tests/chat/test_templates.c
  tools/jinja_features.py --check BUILD/linnet               compares with linnet; prints the cases that differ and exits with 1
  tools/jinja_features.py --check BUILD/linnet --n 20000     the same with random cases

The features: integers beyond 64 bits, str.format and its format specifications, the fields of groupby, and attributes of every type of value.
Features of Python that linnet refuses by name ("is not supported") are left out."""
import argparse
import itertools
import json
import random
import re
import subprocess
import sys

from jinja_programs import NOW, environment

OPTIONS = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": False}
ENVIRONMENT = environment(OPTIONS)
BIG = ["9223372036854775807", "9223372036854775808", "-9223372036854775809", "18446744073709551616", "12345678901234567890", "10 ** 40", "-(2 ** 200)", "3",
       "-7", "2.5", "0", "1e19", "9007199254740993"]
CONTEXT = {"a": 12345678901234567890, "b": -18446744073709551616, "c": 10 ** 60 + 7, "n": 7, "f": 2.5, "s": "é<|x|>", "l": [1, 2 ** 70], "d": {"k": 2 ** 64, "name": "x", "0": "zero"},
           "xs": [{"g": "b", "v": 1}, {"g": "A", "v": 2 ** 65}, {"g": "a", "v": 3}]}
KINDS = {"s": "'abc'", "i": "(5)", "b": "true", "f": "(2.5)", "big": "(10**30)", "l": "[1,2]", "t": "(1,2)", "d": "{'a': 1, '__class__': 2, '_x': 3, 'foo': 4}", "r": "range(1, 9, 3)",
         "n": "none", "k": "{'a': 1}.keys()", "v": "{'a': 1}.values()", "cy": "cycler(1, 2)", "jo": "joiner('-')", "ns": "namespace(a=1, foo=3, items=4)",
         "gr": "(xs|groupby('g'))[0]", "u": "undef", "m": "mac", "safe": "('abc'|safe)"}
NAMES = ["foo", "_x", "__class__", "real", "imag", "numerator", "denominator", "bit_length", "is_integer", "conjugate", "start", "stop", "step", "count", "index", "grouper", "list", "name",
         "arguments", "catch_kwargs", "catch_varargs", "caller", "explicit_caller", "items", "pos", "current", "next", "sep", "used", "append", "update", "upper", "copy", "keys", "a"]
SPECS = ["", "d", "5", ">8", "<8", "^9", "=+8", "08", "+", " ", "x", "#x", "#X", "#o", "#b", "b", "c", "n", "e", ".2e", "f", ".2f", ".0f", "#.0f", "g", ".3g", "G", "%", ".1%", ",", "_",
         ",.2f", "_x", "010,", "012,d", "*^12,", "é>6", "s", ".2", ".2s", "6.2", ".1", ".3", ".10", "z.1f", "0=8", "+.3", "<010", "020.3f", "012_x", "q", "+s", "=8s", ",x", ".", "5d5", "{", "1.5d"]
FORMATS = ["{}", "{} {}", "{0} {1} {0}", "{0}{}", "{}{0}", "{a} {b!r}", "{{}} {}", "{", "}", "{0", "{0!r:>20}", "{0!s}", "{0!a}", "{0!x}", "{0:{1}}", "{:{}}", "{:>{w}}", "{d[k]}", "{d[name]}",
           "{d.k}", "{d[0]}", "{l[1]}", "{l[9]}", "{d.missing}", "{d.missing.x}", "{0.__class__}", "{0.__class__.x}", "{d[k}", "{d.}", "{d[k]x}", "{.real}", "{0.real}", "{d.items}", "{nope}", "{9}",
           "{0:{1:{1}}}", "{0:{1:{1:{1}}}}", "{!r}", "{!r:>9}", "{0!rx}", "{:{{}}}", "é{}é", "{s}{0}", "{l}", "{0:>{l[0]}}", "{ }", "{a:,} {a:_} {c:x}"]

# recorded besides the sample: the alternate form of a float that str() writes with an exponent and without a point
EDGES = ["{{ '{:%s}'.format(%s) }}" % (spec, value) for spec in ("#", "#12", "+z#010", "*^#12,", "#.1", "#.0", "#g", "#e") for value in ("1e16", "-1e-7", "1.5e300", "2.0", "'nan'|float")]
# names with an underscore in a namespace: they can be set, and the sandbox rejects to read them
HIDDEN = ["{{ ns._x }}", "{{ ns['_x'] }}", "{{ ns._x is defined }}", "{{ ns._x or 3 }}", "{{ ns|attr('_x') is defined }}", "{{ ns._x|default('d') }}", "{{ ns._x == 1 }}",
          "{{ ns._x + 1 }}", "{% for i in ns._x %}{{ i }}{% endfor %}", "{% set ns._x = 5 %}{{ ns._x ~ 'a' }}", "{{ ns.a }}", "{{ '{0._x}'.format(ns) }}"]
EDGES += ["{% set ns = namespace(_x=1, a=2) %}" + x for x in HIDDEN]


def cases():
    for x, y in itertools.product(BIG, BIG):
        for op in ("+", "-", "*", "//", "%", "/"):
            yield "{{ (%s) %s (%s) }}" % (x, op, y)
        yield "{{ [(%s) < (%s), (%s) == (%s), (%s) >= (%s)] }}" % (x, y, x, y, x, y)
    for x in BIG:
        for form in ("{{ %s }}", "{{ (%s)|tojson }}", "{{ (%s)|int }}", "{{ (%s)|string|int }}", "{{ (%s)|float }}", "{{ (%s)|abs }}", "{{ '%%d|%%x|%%o|%%s|%%30d|%%+.25d' %% ((%s,) * 6) }}",
                     "{{ '%%.3f %%e' %% ((%s,) * 2) }}", "{{ (%s)|round(-3) }}", "{{ (%s)|round(-19) }}", "{{ (%s)|round }}", "{{ (%s)|round(2, 'ceil') }}", "{{ (%s)|round(-1, 'floor') }}",
                     "{{ -(%s) }}", "{{ (%s) is number }} {{ (%s) is integer }}", "{{ [%s, 1]|sum }}", "{{ [%s, 1]|max }} {{ [%s, 1]|sort }}", "{{ {%s: 1}|tojson }} {{ {%s: 1}[%s] }}",
                     "{{ 'abc'[:%s] }}", "{{ [1, 2, 3][%s] }}", "{{ (%s) is odd }}", "{{ (%s) ** 2 }}", "{{ 2 ** (%s) }}", "{{ (%s) ** -2 }}", "{{ 'a' * (%s) }}", "{{ (%s) in [2 ** 63, 3] }}",
                     "{{ '%%c' %% (%s) }}", "{{ [%s, %s]|unique|list }}", "{{ (%s) or 'x' }}"):
            yield form.replace("%s", x).replace("%%", "%") if "%%" in form else form.replace("%s", x)
    for x in ("0xffffffffffffffffffff", "1_000_000_000_000_000_000_000", "0b1" + "0" * 70, "'0x' ~ 'f' * 20 ", "-9223372036854775808", "1e300", "1e22", "-1e25", "a", "b", "c", "d", "l", "xs"):
        yield "{{ %s }} {{ (%s)|tojson(indent=1) }} {{ (%s)|int(7, 16) }}" % (x, x, x)
    for value, spec in itertools.product(("a", "n", "-n", "f", "0.0", "-0.0", "1e20", "1e-7", "123456.789", "true", "'text'", "s", "l", "none", "undef", "1e400|float", "c", "65", "1234567", "'nan'|float",
                                          "'-inf'|float"), SPECS):
        yield "{{ '{:%s}'.format(%s) }}" % (spec, value)
    for form in FORMATS:
        yield "{{ '%s'.format(n, 12, a=a, b=s, c=c, d=d, l=l, s=s, w=6) }}" % form
        yield "{{ '%s'.format_map({'a': a, 'd': d, 's': s, 'l': l, 'w': 4}) }}" % form
        yield "{{ '%s'.format(*l) }}{{ '%s'['format'](n) }}" % (form, form)
    yield "{% set f = 'x{}'.format %}{{ f(1) }}{{ ['<{}>', '[{}]']|map('string')|list|length }}{{ 'a'.format_map(1) }}"
    yield "{{ 'x'.format_map() }}"
    yield "{{ 'x'.format_map({}, a=1) }}"
    for kind, name in itertools.product(KINDS, NAMES):
        if kind == "u" and name.startswith("__"):
            continue  # Jinja2's Undefined has some of these attributes; linnet reports the undefined variable instead
        start = "{%% macro mac(a, b=1) %%}{{ kwargs }}{%% endmacro %%}{%% set o = %s %%}" % KINDS[kind]
        for form in ("{{ o.%s }}", "{{ o.%s is defined }}", "{{ o['%s'] }}", "{{ o|attr('%s') }}", "{{ o.%s.foo }}", "{{ o.%s() }}", "{{ '{0.%s}'.format(o) }}"):
            yield start + form % name
    for name in NAMES + ["index0", "first", "last", "length", "depth", "depth0", "revindex", "previtem", "nextitem", "cycle", "changed"]:
        yield "{%% for x in [1, 2] %%}{{ loop.%s is defined }}{{ loop['%s'] is defined }}{{ loop.%s.foo }}{%% endfor %%}" % (name, name, name)
    yield "{% for g in xs|groupby('g') %}{{ g.grouper }}={{ g.list|length }}{{ g }}{{ g[0] }}{{ g|length }}{{ g|tojson }}{{ g == (g.grouper, g.list) }}{{ g[:1].grouper }};{% endfor %}"
    yield "{% for k, v in xs|groupby('g', case_sensitive=true) %}{{ k }}{{ v|map(attribute='v')|sum }}{% endfor %}{{ xs|groupby('v')|map(attribute='grouper')|list }}"
    yield "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.reset() }}{{ c.current }}{{ c.items }}{{ cycler() }}"
    yield "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.reset() }}{{ c.current }}{{ c.items }}"
    yield "{% set j = joiner() %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}{% set k = joiner('|') %}{{ k() }}{{ k() }}{{ k.used }}{{ k.sep }}"


def random_case(rng):
    value = lambda: rng.choice(["a", "b", "c", "n", "f", "s", "true", str(rng.randrange(-10 ** rng.randrange(1, 60), 10 ** rng.randrange(1, 60))), repr(rng.uniform(-1, 1) * 10.0 ** rng.randrange(-30, 30))])
    if rng.random() < 0.5:
        return "{{ (%s) %s (%s) }}" % (value(), rng.choice(["+", "-", "*", "//", "%", "/", "<", "=="]), value())
    spec = "".join([rng.choice(["", "", "*<", "0=", "^", "=", ">", "é^"]), rng.choice(["", "", "+", " ", "-"]), rng.choice(["", "", "#"]), rng.choice(["", "0"]),
                    rng.choice(["", str(rng.randrange(40))]), rng.choice(["", "", ",", "_"]), rng.choice(["", "", ".%d" % rng.randrange(20)]), rng.choice(["", *"bcdeEfFgGnosxX%"])])
    return "{{ '{:%s}'.format(%s) }}" % (spec, value())


def line_of(source):
    context = {k: v for k, v in CONTEXT.items() if re.search(r"\b%s\b" % k, source)}
    line = {"template": source, "context": context, **OPTIONS, "now": NOW}
    try:
        line["expected"] = ENVIRONMENT.from_string(source).render(**context)
    except Exception as e:  # any exception counts as a failure
        line["error"] = type(e).__name__
    return line


def comparable(line):
    text = line.get("expected", "")
    if line.get("error") == "NameError":  # constant folding in Jinja2 writes nan or inf into the generated Python code as a name
        return False
    return not any(x in text for x in (" at 0x", "<built-in", "<class", "<slot")) and not any(0xD800 <= ord(c) < 0xE000 for c in text)


def check(linnet, lines):
    text = "".join(json.dumps(x, ensure_ascii=False) + "\n" for x in lines)
    out = subprocess.run([linnet, "template", "--jsonl"], input=text.encode(), stdout=subprocess.PIPE, check=True).stdout.decode()
    bad = left_out = 0
    for line, answer in zip(lines, [json.loads(x) for x in out.split("\n") if x], strict=True):
        if any(x in answer.get("error", "") for x in ("not supported", "16384 bits")):
            left_out += 1
        elif ("expected" in line) != ("text" in answer) or line.get("expected") != answer.get("text"):
            bad += 1
            print(json.dumps({k: v for k, v in {**line, "got": answer}.items() if k != "context"}, ensure_ascii=False))
    print("%d cases, %d left out, %d differ" % (len(lines), left_out, bad), file=sys.stderr)
    return 1 if bad else 0


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--check", metavar="LINNET")
    p.add_argument("--n", type=int, default=0, help="random cases instead of the fixed ones")
    p.add_argument("--seed", default="1")
    a = p.parse_args()
    rng = random.Random(a.seed)
    sources = [random_case(rng) for _ in range(a.n)] if a.n else list(cases())
    if not a.check and not a.n:  # the recorded cases are a sample
        rng.shuffle(sources)
        sources = sorted(sources[:600] + EDGES)
    lines = [x for x in map(line_of, sources) if comparable(x)]
    if a.check:
        sys.exit(check(a.check, lines))
    for line in lines:
        print(json.dumps(line, ensure_ascii=False))


if __name__ == "__main__":
    main()
