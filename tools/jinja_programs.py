#!/usr/bin/env python3
"""Random template programs, rendered by Jinja2, configured as in transformers, and by linnet.

  tools/jinja_programs.py check BUILD/linnet [--n 100000] [--seed 1]   compares; prints the programs that differ and exits with 1
  tools/jinja_programs.py sample [--n 400] [--seed 7] > FILE.jsonl     the fixed sample of tests/chat/test_templates.c
  tools/jinja_programs.py seeds DIR [--n 400] [--seed 7]               programs as inputs of fuzz/fuzz_jinja.c

Needs python3-jinja2 (Debian) or jinja2 >= 3.1 from PyPI. A program is a few statements of the subset that chat templates use, with
expressions that are mostly correctly typed, in a random context and with random white space control. The results agree when both
texts are equal or both fail. Programs with integers beyond 64 bits, which linnet refuses, are counted and left out."""
import argparse
import datetime
import json
import random
import subprocess
import sys

from jinja2.ext import Extension, loopcontrols
from jinja2 import nodes, exceptions
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = "2025-07-10T12:34:56"


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment(options):
    def refuse(message):
        raise exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(extensions=[Generation, loopcontrols], **options)
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = lambda form: datetime.datetime.fromisoformat(NOW).strftime(form)
    return env


WORDS = ["a", "b", "abc", "Hello", "WORLD", "<|im_end|>", " pad ", "x y z", "tab\t", "line\nbreak", "", "é", "ÀÉ", "ß", "日本語", "ﬁ", "👩‍👧", "<b>&'\"</b>",
         "aXbXc", "000", "42", "-7", "3.5", "1e3", "None", "true", "a,b,,c", "  lead", "trail  ", "it's", 'say "hi"', "\u00a0nb\u00a0", "{{x}}", "back\\slash", "ΣΑΣ"]
KEYS = ["role", "content", "name", "items", "keys", "a", "b", "k1", "value"]
TEXTS = ["text", " ", "\n", "  \n", "x\n  ", "<|x|>", "é ", "\t", "}", "{", "%", "#", " - ", "end.\n\n"]
VARS = {"s": "str", "t": "str", "u": "str", "n": "int", "m": "int", "f": "float", "ok": "bool", "no": "bool", "xs": "ints", "ws": "strs", "d": "dict", "ms": "dicts", "nil": "none", "mix": "mix"}


class Maker:
    def __init__(self, rng):
        self.r = rng
        self.depth = 0
        self.loops = 0
        self.scope = dict(VARS)
        self.macros = []
        self.spaces = []

    def pick(self, *items):
        return self.r.choice(items)

    def maybe(self, p):
        return self.r.random() < p

    # ---- context ----

    def word(self):
        return self.r.choice(WORDS) if self.maybe(0.8) else "".join(self.r.choice("abcXYZ 019_-.,é\n") for _ in range(self.r.randrange(9)))

    def data(self, depth=0):
        k = self.r.randrange(8 if depth < 2 else 6)
        if k == 6:
            return [self.data(depth + 1) for _ in range(self.r.randrange(4))]
        if k == 7:
            return {self.r.choice(KEYS): self.data(depth + 1) for _ in range(self.r.randrange(4))}
        return [self.word(), self.word(), self.r.randrange(-20, 100), self.r.choice([0.5, -1.25, 3.0, 1e20, 1e-7, 123456.789]), self.maybe(0.5), None][k]

    def context(self):
        r = self.r
        message = lambda: {"role": r.choice(["user", "assistant", "system"]), "content": self.word(), **({"n": r.randrange(5)} if self.maybe(0.6) else {}),
                           **({"name": self.word()} if self.maybe(0.3) else {})}
        return {"s": self.word(), "t": self.word(), "u": self.word(), "n": r.randrange(-5, 12), "m": r.randrange(1, 8), "f": r.choice([0.5, 2.0, -1.5, 3.14159, 1e16, 1e-5]),
                "ok": True, "no": False, "xs": [r.randrange(-5, 10) for _ in range(r.randrange(6))], "ws": [self.word() for _ in range(r.randrange(5))],
                "d": {r.choice(KEYS): self.data() for _ in range(r.randrange(5))}, "ms": [message() for _ in range(r.randrange(5))], "nil": None, "mix": self.data()}

    # ---- expressions ----

    def literal(self, s):
        quote = self.pick("'", '"')
        out = ""
        for c in s:
            if c == "\\" or c == quote:
                out += "\\" + c
            elif c == "\n" and self.maybe(0.8):
                out += "\\n"
            elif c == "\t" and self.maybe(0.5):
                out += "\\t"
            elif ord(c) > 127 and self.maybe(0.3):
                out += "\\u%04x" % ord(c) if ord(c) < 65536 else "\\U%08x" % ord(c)
            else:
                out += c
        return quote + out + quote

    def var(self, *types):
        names = [k for k, v in self.scope.items() if v in types]
        return self.r.choice(names) if names else None

    def expr(self, kind):
        self.depth += 1
        try:
            if self.maybe(0.006):
                kind = self.pick("int", "str", "bool", "ints", "dict", "any")
            if self.depth > 5:
                return self.leaf(kind)
            if self.maybe(0.08):
                return "(%s)" % self.expr(kind)
            if self.maybe(0.05):
                return "(%s if %s else %s)" % (self.expr(kind), self.expr("bool"), self.expr(kind))
            if self.maybe(0.03):
                return "(%s %s %s)" % (self.expr(kind), self.pick("or", "and"), self.expr(kind))
            return getattr(self, "e_" + kind)()
        finally:
            self.depth -= 1

    def leaf(self, kind):
        v = self.var(*{"any": set(VARS.values()), "seq": {"ints", "strs", "dicts"}, "num": {"int", "float"}}.get(kind, {kind}))
        if v and self.maybe(0.7):
            return v
        return {"int": lambda: str(self.r.randrange(0, 12)), "num": lambda: self.pick("2", "0.5", "10", "1.5e2", "0x1f", "1_000"), "float": lambda: self.pick("0.5", "2.0", "1e3", "100.25"),
                "str": lambda: self.literal(self.word()), "bool": lambda: self.pick("true", "false", "True", "False"),
                "ints": lambda: "[%s]" % ", ".join(str(self.r.randrange(9)) for _ in range(self.r.randrange(4))),
                "strs": lambda: "[%s]" % ", ".join(self.literal(self.word()) for _ in range(self.r.randrange(4))),
                "seq": lambda: "[1, 'a', 2.5]", "dict": lambda: "{'a': 1, 'b': %s}" % self.literal(self.word()), "dicts": lambda: "ms", "none": lambda: "none", "mix": lambda: "mix",
                "any": lambda: self.pick("none", "nothing", "1", "'x'", "[]", "{}", "mix")}[kind]()

    def e_int(self):
        r = self.r.randrange(14)
        if r < 3:
            return self.leaf("int")
        if r == 3:
            return "%s %s %s" % (self.expr("int"), self.pick("+", "-", "*"), self.leaf("int"))
        if r == 4:
            return "%s %s %s" % (self.expr("int"), self.pick("//", "%"), self.pick("3", "7", "-2", "m"))
        if r == 5:
            return "%s|length" % self.expr(self.pick("str", "seq", "dict"))
        if r == 6:
            return "%s|int%s" % (self.expr(self.pick("str", "num")), self.pick("", "(1)", "(default=-1)", "(0, 16)"))
        if r == 7:
            return "-%s" % self.expr("int")
        if r == 8:
            return "(%s).%s(%s)" % (self.expr("str"), self.pick("find", "count", "rfind"), self.expr("str"))
        if r == 9:
            return "%s|%s" % (self.expr("ints"), self.pick("sum", "max", "min", "first", "last", "length"))
        if r == 10 and self.loops:
            return "loop.%s" % self.pick("index", "index0", "length", "revindex", "revindex0")
        if r == 11:
            return "%s|abs" % self.expr("int")
        if r == 12:
            return "(%s)[%s]" % (self.expr("ints"), self.pick("0", "-1", "1"))
        return "%s ** %s" % (self.leaf("int"), self.pick("2", "0", "3"))

    def e_float(self):
        return self.pick(lambda: self.leaf("float"), lambda: "%s / %s" % (self.expr("num"), self.pick("2", "4", "0.5", "m")), lambda: "%s|float" % self.expr(self.pick("str", "num")),
                         lambda: "%s|round(%s)" % (self.expr("float"), self.pick("", "1", "2", "precision=1", "0, 'floor'", "1, 'ceil'")))()

    def e_num(self):
        return self.expr(self.pick("int", "float"))

    def e_bool(self):
        r = self.r.randrange(12)
        if r == 0:
            return self.leaf("bool")
        if r == 1:
            return "%s %s %s" % (self.expr("num"), self.pick("<", "<=", ">", ">=", "==", "!="), self.expr("num"))
        if r == 2:
            return "%s %s %s" % (self.expr("str"), self.pick("==", "!=", "<", ">"), self.expr("str"))
        if r == 3:
            return "%s %s %s" % (self.expr("str"), self.pick("in", "not in"), self.expr(self.pick("str", "strs", "dict")))
        if r == 4:
            return "not %s" % self.expr(self.pick("bool", "any", "str"))
        if r == 5:
            return "%s is %s%s" % (self.expr(self.pick("any", "str", "int", "dict", "seq")), self.pick("", "not "),
                                   self.pick("defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean", "true", "false", "callable", "lower", "upper"))
        if r == 6:
            return "%s is %s" % (self.expr("int"), self.pick("odd", "even", "divisibleby 3", "divisibleby(2)", "eq 2", "in [1, 2]", "sameas 1", "gt 3", "le(4)"))
        if r == 7:
            return "(%s).%s(%s)" % (self.expr("str"), self.pick("startswith", "endswith"), self.pick(self.expr("str"), "('a', 'H', ' ')"))
        if r == 8:
            return "(%s).%s()" % (self.expr("str"), self.pick("isdigit", "isalpha", "isalnum", "isspace", "isupper", "islower"))
        if r == 9 and self.loops:
            return "loop.%s" % self.pick("first", "last")
        if r == 10:
            return "%s %s %s %s %s" % (self.expr("int"), self.pick("<", "<="), self.expr("int"), self.pick("<", "!="), self.expr("int"))
        return "%s %s %s" % (self.expr("bool"), self.pick("and", "or"), self.expr("bool"))

    def slice(self):
        n = lambda: self.pick("", "", "1", "-1", "2", "-2", "0", "5")
        return "[%s:%s%s]" % (n(), n(), self.pick("", "", ":2", ":-1", ":" + n().replace("0", "3")))

    def e_str(self):
        r = self.r.randrange(26)
        if r < 4:
            return self.leaf("str")
        if r == 4:
            return "%s + %s" % (self.expr("str"), self.expr("str"))
        if r == 5:
            return "%s ~ %s" % (self.expr("any"), self.expr(self.pick("str", "num", "any")))
        if r == 6:
            return "(%s)|%s" % (self.expr("str"), self.pick("trim", "upper", "lower", "capitalize", "title", "string", "length|string", "reverse", "e", "trim('a ')", "safe", "d('x')", "default('y', true)"))
        if r == 7:
            return "(%s).%s(%s)" % (self.expr("str"), self.pick("strip", "lstrip", "rstrip"), self.pick("", "", self.literal(self.pick("ab ", "\n", "x", "é<"))))
        if r == 8:
            return "%s%s" % (self.pick(self.leaf("str"), "(%s)" % self.expr("str")), self.slice())
        if r == 9:
            return "%s|replace(%s, %s%s)" % (self.expr("str"), self.expr("str"), self.expr("str"), self.pick("", ", 1", ", count=2"))
        if r == 10:
            return "(%s).replace(%s, %s)" % (self.expr("str"), self.literal(self.pick("a", "", "X", " ", "é")), self.expr("str"))
        if r == 11:
            return "%s|join(%s)" % (self.expr(self.pick("seq", "strs")), self.pick("", self.expr("str")))
        if r == 12:
            return "%s|tojson%s" % (self.expr(self.pick("any", "dict", "seq", "str", "num")), self.pick("", "", "(indent=2)", "(ensure_ascii=true)", "(sort_keys=true)", "(indent=4)", "(separators=(',', ':'))"))
        if r == 13:
            return "(%s).%s()" % (self.expr("str"), self.pick("upper", "lower", "title", "capitalize", "swapcase"))
        if r == 14:
            return "(%s).split(%s)%s" % (self.expr("str"), self.pick("", "','", "' '", "'a', 1", "none, 1", "'\\n'"), self.pick("[0]", "[-1]"))
        if r == 15:
            return "%s|string" % self.expr(self.pick("any", "num", "seq", "dict"))
        if r == 16:
            return "%s|%s" % (self.expr("strs"), self.pick("first", "last", "join(' ')", "join"))
        if r == 17:
            return "%s * %s" % (self.expr("str"), self.pick("2", "0", "3"))
        if r == 18:
            return "%s|indent%s" % (self.expr("str"), self.pick("", "(2)", "(1, true)", "(width=3, blank=true)", "('> ')"))
        if r == 19:
            return "%s|truncate(%s)" % (self.expr("str"), self.pick("5", "3, true", "6, false, '!'", "4, leeway=0"))
        if r == 20:
            return "ms[%s].%s" % (self.pick("0", "-1", "1"), self.pick("role", "content"))
        if r == 21:
            return "d%s" % self.pick("['role']", ".content", ".a", ".get('b')", ".get('k1', 'dflt')", ".name", "['b'|string]")
        if r == 22:
            return self.pick("'%s-%s' % (s, n)", "'%5d|%-4s|%.2f' % (n, t, f)", "'%%' % ()", "'%03d' % m", "'%s' % ws", "'{}' ~ s", "'%x' % m", "s|format", "'%s and %s'|format(s, n)")
        if r == 23:
            return "(%s).%s(%s%s)" % (self.expr("str"), self.pick("center", "ljust", "rjust"), self.pick("4", "9"), self.pick("", ", '*'"))
        if r == 24 and self.macros:
            return self.call()
        return "(%s).%s(%s)" % (self.expr("str"), self.pick("removeprefix", "removesuffix", "strip"), self.expr("str"))

    def call(self):
        name, params = self.r.choice(self.macros)
        given = [self.expr("str") for _ in params[: self.r.randrange(len(params) + 1)]]
        if self.maybe(0.3) and params:
            given = given[:-1] + ["%s=%s" % (params[-1], self.expr("str"))] if len(given) == len(params) else given + ["%s=%s" % (params[-1], self.expr("str"))]
        return "%s(%s)" % (name, ", ".join(given))

    def e_ints(self):
        return self.pick(lambda: self.leaf("ints"), lambda: "[%s]" % ", ".join(self.expr("num") for _ in range(self.r.randrange(4))), lambda: "range(%s)" % self.pick("4", "1, m", "5, 0, -2", "0, 10, 3"),
                         lambda: "(%s|list)%s" % (self.expr("ints"), self.slice()), lambda: "%s|sort%s" % (self.expr("ints"), self.pick("", "(true)", "(reverse=true)")),
                         lambda: "%s|map('int')|list" % self.expr("strs"), lambda: "%s|select('%s')|list" % (self.expr("ints"), self.pick("odd", "even", "gt', 2) | reject('eq', 3")),
                         lambda: "%s|unique|list" % self.expr("ints"), lambda: "(%s)|reverse|list" % self.expr("ints"), lambda: "%s + %s" % (self.leaf("ints"), self.leaf("ints")))()

    def e_strs(self):
        return self.pick(lambda: self.leaf("strs"), lambda: "[%s]" % ", ".join(self.expr("str") for _ in range(self.r.randrange(4))), lambda: "(%s).split(%s)" % (self.expr("str"), self.pick("", "','", "'a'", "' ', 2")),
                         lambda: "%s|map('%s')|list" % (self.expr("strs"), self.pick("upper", "trim", "length", "lower", "string", "replace', 'a', 'b")), lambda: "%s|sort%s" % (self.expr("strs"), self.pick("", "(case_sensitive=true)")),
                         lambda: "ms|map(attribute='%s')|list" % self.pick("role", "content", "n", "name"), lambda: "%s|list" % self.expr("str"), lambda: "d.keys()|list", lambda: "(%s).splitlines()" % self.expr("str"),
                         lambda: "%s|unique|list" % self.expr("strs"), lambda: "%s|reject('in', %s)|list" % (self.expr("strs"), self.expr("strs")), lambda: "(%s).rsplit(%s)" % (self.expr("str"), self.pick("", "','", "'a', 1")))()

    def e_dicts(self):
        return self.pick(lambda: "ms", lambda: "ms%s" % self.slice(), lambda: "ms|selectattr('role', '%s', 'user')|list" % self.pick("equalto", "ne", "==", "in"), lambda: "ms|rejectattr('n')|list",
                         lambda: "ms|selectattr('%s', 'defined')|list" % self.pick("n", "name"), lambda: "ms|sort(attribute='content')", lambda: "[d, {'role': s}]", lambda: "ms|selectattr('name')|list")()

    def e_seq(self):
        if self.maybe(0.15):
            return self.pick("ms|groupby('role')|list", "xs|batch(2)|list", "xs|batch(3, 0)|list", "ws|slice(2)|list", "d|dictsort", "d.items()|list", "d|items|list", "d.values()|list", "[s, n, f]", "(s, n)", "[[1, 2], [3]]",
                             "xs|map('string')|list", "(1, 2) + (3,)", "ws|map('length')|list", "d|dictsort(by='key', reverse=true)", "d|list", "dict(a=1, b=s)|items|list")
        return self.expr(self.pick("ints", "strs", "dicts"))

    def e_dict(self):
        return self.pick(lambda: self.leaf("dict"), lambda: "{%s}" % ", ".join("%s: %s" % (self.pick("'a'", "'b'", "1", "s", "(1, 2)", "true", "'role'", "none", "2.5"), self.expr("any")) for _ in range(self.r.randrange(4))),
                         lambda: "ms[0]", lambda: "dict(x=%s, y=%s)" % (self.expr("any"), self.expr("str")), lambda: "dict(d)")()

    def e_none(self):
        return "none"

    def e_mix(self):
        return "mix"

    def e_any(self):
        if self.maybe(0.12):
            return self.pick("nothing", "nothing.x", "d.nope", "ms[9]", "nil", "mix", "[]", "{}", "()", "d.items is callable", "xs[0]", "ws[99]|d('none')", "s[0]", "'x' if no", "loop.nextitem", "loop.previtem", "ms|first", "nothing|d(1)", "ns.x", "d.items()|first")
        return self.expr(self.pick("int", "str", "bool", "float", "ints", "strs", "dict", "dicts", "seq"))

    # ---- statements ----

    def tag(self, inner):
        return "{%%%s %s %s%%}" % (self.pick("", "", "-", "-", "+"), inner, self.pick("", "", "-", "-", "+"))

    def body(self, n=3):
        return "".join(self.statement() for _ in range(self.r.randrange(1, n + 1)))

    def statement(self):
        self.depth += 1
        try:
            r = self.r.randrange(22 if self.depth < 4 else 9)
            if r < 3:
                return self.r.choice(TEXTS)
            if r < 7:
                return "{{%s %s %s}}" % (self.pick("", "", "-"), self.expr(self.pick("str", "str", "int", "any", "bool", "seq", "dict", "float")), self.pick("", "", "-"))
            if r == 7:
                return self.pick("{# note #}", "{#- tight -#}", "{# two\nlines #}\n", "{#+ x +#}")
            if r == 8:
                return self.set()
            if r < 12:
                return self.if_()
            if r < 16:
                return self.for_()
            return getattr(self, self.pick("set", "macro", "setblock", "filterblock", "with_", "space", "raw", "callblock", "generation", "leave"))()
        finally:
            self.depth -= 1

    def set(self):
        kind = self.pick("int", "str", "str", "bool", "ints", "strs", "dict")
        name = self.pick("v1", "v2", "s", "n", "xs", "w")
        if self.maybe(0.1):
            return self.tag("set v1, v2 = %s, %s" % (self.expr("str"), self.expr("int")))
        out = self.tag("set %s = %s" % (name, self.expr(kind)))
        self.scope[name] = kind
        return out

    def if_(self):
        out = self.tag("if " + self.expr(self.pick("bool", "bool", "any", "str"))) + self.body()
        if self.maybe(0.3):
            out += self.tag("elif " + self.expr("bool")) + self.body(2)
        if self.maybe(0.5):
            out += self.tag("else") + self.body(2)
        return out + self.tag("endif")

    def for_(self):
        saved, kind = dict(self.scope), self.pick("ints", "strs", "dicts", "pairs", "seq", "chars")
        over = {"pairs": lambda: self.pick("d.items()", "d|dictsort", "d|items", "[(1, 2), (3, 4)]", "{'k': 'v'}.items()"), "chars": lambda: self.expr("str")}.get(kind, lambda: self.expr(kind))()
        target, items = ("k, v", {"k": "str", "v": "any"}) if kind == "pairs" else ("x", {"x": {"ints": "int", "strs": "str", "dicts": "dict", "seq": "any", "chars": "str"}[kind]})
        head = "for %s in %s" % (target, over)
        self.scope.update(items)
        if self.maybe(0.2):
            loops, self.loops = self.loops, 0
            head += " if " + self.expr("bool")
            self.loops = loops
        self.loops += 1
        out = self.tag(head) + self.body()
        self.loops -= 1
        self.scope = saved
        if self.maybe(0.2):
            out += self.tag("else") + self.body(1)
        return out + self.tag("endfor")

    def leave(self):
        if not self.loops:
            return ""
        return self.tag("if " + self.expr("bool")) + self.tag(self.pick("break", "continue")) + self.tag("endif")

    def macro(self):
        saved, loops, self.loops = dict(self.scope), self.loops, 0
        params = [["p"], ["p", "q"], [], ["p", "q", "o"]][self.r.randrange(4)]
        name = "mac%d" % self.r.randrange(3)
        with_default = [p if i < len(params) - 1 or self.maybe(0.4) else "%s=%s" % (p, self.expr("str")) for i, p in enumerate(params)]
        for p in params:
            self.scope[p] = "str"
        extra = self.pick("", "", "", "{{ caller() if caller else '' }}", "{{ varargs|length }}", "{{ kwargs|length }}")
        macros, self.macros = self.macros, []
        out = self.tag("macro %s(%s)" % (name, ", ".join(with_default))) + self.body() + extra + self.tag("endmacro")
        self.macros = macros + [(name, params)]
        self.scope, self.loops = saved, loops
        return out

    def callblock(self):
        if not self.macros:
            return self.macro()
        loops, self.loops = self.loops, 0
        out = self.tag("call " + self.call()) + self.body(2) + self.tag("endcall")
        self.loops = loops
        return out

    def setblock(self):
        name = self.pick("v1", "w")
        out = self.tag("set %s%s" % (name, self.pick("", "", " | trim", " | upper | replace('A', 'b')"))) + self.body(2) + self.tag("endset")
        self.scope[name] = "str"
        return out

    def filterblock(self):
        return self.tag("filter " + self.pick("upper", "trim", "replace('a', 'o')", "indent(2)", "trim | lower")) + self.body(2) + self.tag("endfilter")

    def with_(self):
        saved = dict(self.scope)
        out = self.tag("with w = %s, z = %s" % (self.expr("str"), self.expr("int")))
        self.scope.update({"w": "str", "z": "int"})
        out += self.body(2) + self.tag("endwith")
        self.scope = saved
        return out

    def generation(self):
        loops, self.loops = self.loops, 0
        out = self.tag("generation") + self.body(2) + self.tag("endgeneration")
        self.loops = loops
        return out

    def space(self):
        out = self.tag("set ns = namespace(x=%s, count=0)" % self.expr("any"))
        out += self.tag("for i in range(3)") + self.tag("set ns.count = ns.count + i") + self.tag("set ns.x = " + self.expr("any")) + self.tag("endfor") + "{{ ns.count }}{{ ns.x }}"
        return out

    def raw(self):
        return self.pick("{% raw %}{{ x }}{% endraw %}", "{%- raw -%} {% if %} {%- endraw -%}", "{% raw %}\n{#\n{% endraw %}\n")

    def program(self):
        return self.body(4)


def program(seed):
    rng = random.Random(seed)
    maker = Maker(rng)
    context = maker.context()
    options = {"trim_blocks": rng.random() < 0.7, "lstrip_blocks": rng.random() < 0.7, "keep_trailing_newline": rng.random() < 0.2}
    line = {"template": maker.program(), "context": context, **options, "now": NOW}
    try:
        line["expected"] = environment(options).from_string(line["template"]).render(**context)
    except Exception as e:  # any exception counts as a failure
        line["error"] = type(e).__name__
    return line


def printable(line):
    """Whether the expected text can be compared: it has no addresses of objects and no lone surrogates."""
    text = line.get("expected", "").lower()
    return not any(x in text for x in (" at 0x", "<generator", "<built-in", "<bound")) and not any(0xD800 <= ord(c) < 0xE000 for c in text)


def compare(lines, answers):
    bad = big = 0
    for line, answer in zip(lines, answers):
        error = answer.get("error", "")
        if "beyond 64 bits" in error or "not supported" in error:
            big += 1
        elif ("expected" in line) != ("text" in answer) or line.get("expected") != answer.get("text"):
            bad += 1
            print(json.dumps({**line, "got": answer}, ensure_ascii=False))
    return bad, big


def check(linnet, n, seed):
    bad = big = failed = done = 0
    for start in range(0, n, 2000):
        lines = [x for x in (program(f"{seed}/{i}") for i in range(start, min(n, start + 2000))) if printable(x)]
        text = "".join(json.dumps(x, ensure_ascii=False) + "\n" for x in lines)
        out = subprocess.run([linnet, "template", "--jsonl"], input=text.encode(), stdout=subprocess.PIPE, check=True).stdout.decode()
        answers = [json.loads(x) for x in out.split("\n") if x]
        if len(answers) != len(lines):
            sys.exit("%d answers to %d programs" % (len(answers), len(lines)))
        b, g = compare(lines, answers)
        bad, big, done = bad + b, big + g, done + len(lines)
        failed += sum("error" in x for x in lines)
        if bad > 40:
            break
    print("%d programs, %d of them fail in both, %d left out, %d differ" % (done, failed, big, bad), file=sys.stderr)
    return 1 if bad else 0


def main():
    p = argparse.ArgumentParser()
    sub = p.add_subparsers(dest="what", required=True)
    c = sub.add_parser("check")
    c.add_argument("linnet")
    c.add_argument("--n", type=int, default=100000)
    c.add_argument("--seed", default="1")
    s = sub.add_parser("sample")
    s.add_argument("--n", type=int, default=400)
    s.add_argument("--seed", default="7")
    d = sub.add_parser("seeds")
    d.add_argument("dir")
    d.add_argument("--n", type=int, default=400)
    d.add_argument("--seed", default="7")
    a = p.parse_args()
    if a.what == "check":
        sys.exit(check(a.linnet, a.n, a.seed))
    for i in range(a.n):
        line = program(f"{a.seed}/{i}")
        if a.what == "seeds":
            with open("%s/%d" % (a.dir, i), "wb") as f:
                f.write(line["template"].encode() + b"\xff" + json.dumps(line["context"], ensure_ascii=False).encode())
        elif printable(line):
            print(json.dumps(line, ensure_ascii=False))


if __name__ == "__main__":
    main()
