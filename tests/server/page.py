#!/usr/bin/env python3
"""Uses the page of a running server in Chromium as a person would, on the bundled model.

usage: tests/server/page.py [--shots DIR] URL [URL-WITH-KEY KEY]

--shots writes pictures of the page to DIR: wide, narrow, dark, code, a long conversation. Exit 1 when something is not as it
should be; among it any error in the browser's console, any dialog of a script, and any request to another host."""
import json
import os
import sys
import tempfile
import time

from browser import Browser

STORY = "Near the hill lived a little boy"
HOSTILE = r"""<script>document.title = "owned"</script> <img src=x onerror="document.title='owned'"> <b onclick="x()">bold?</b>
<iframe src="javascript:alert(1)"></iframe>

[click](javascript:document.title='owned') [data](data:text/html,<script>1</script>) [tab](java	script:alert(1)) [vb](vbscript:x)
[good](https://example.org/a?b=1&c=%22%3E) <javascript:alert(1)> ![picture](https://example.org/p.png) ![bad](javascript:alert(1))
[attribute](https://example.org/"onmouseover="alert(1)) https://example.org/"><script>alert(1)</script>

<style>body { display: none }</style><svg onload=alert(1)></svg><math><mi xlink:href="javascript:alert(1)">x</mi></math>

```html"><script>alert(1)</script>
<script>document.title = "owned"</script>
```

| a | b |
|---|---|
| <script>document.title='owned'</script> | [x](javascript:alert(1)) |

&lt;script&gt; &#106;avascript: __proto__ constructor
"""


def check(what, good):
    if not good:
        raise SystemExit(f"page.py: {what}")


def answered(b, n):
    b.wait(f"live === null && pathOf(open).length === {n} && document.querySelectorAll('article').length === {n}", f"an answer: {n} messages")


def text_of(b, k):
    return b.run(f"document.querySelectorAll('article')[{k}].querySelector('.text').textContent")


def load(b, content, n):
    """Imports a file with this content; n: messages of its conversation."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False, encoding="utf-8") as f:
        f.write(content if isinstance(content, str) else json.dumps(content))
    b.choose_file("#import-file", f.name)
    b.wait(f"pathOf(open).length === {n} && byId('import-file').value === ''", "an imported conversation")
    os.unlink(f.name)


def set_field(b, name, value):
    b.run(f"(() => {{ const f = byId('f-{name}'); f.value = '{value}'; f.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()")


def start(b, url):
    b.open(url + "/")
    b.wait("models.length === 1 && document.querySelector('.empty')")
    check("the model is named", b.run("byId('model').value") == "tiny" and "tiny" in b.run("document.querySelector('.empty h2').innerText"))
    check("the message box has the focus", b.run("document.activeElement.id") == "prompt")
    names = b.run("[...document.querySelectorAll('button, input:not([hidden]), select, textarea')].filter(e => !(e.ariaLabel || e.innerText.trim() ||"
                  " e.labels?.length || e.title)).map(e => e.outerHTML)")
    check(f"controls without a name: {names}", names == [])




def first_message(b):
    """The first message: its answer comes in pieces, and what was measured is shown."""
    set_field(b, "temperature", "0")
    set_field(b, "max_tokens", "60")
    b.run("""window.pieces = new Set(); new MutationObserver(() => pieces.add(document.querySelector('.assistant .text')?.innerText))
             .observe(byId('messages'), { subtree: true, childList: true, characterData: true })""")
    b.slow(20000) # bytes a second: the bundled model would answer within a few frames
    b.type("Tell me a short story.")
    b.press("Enter")
    answered(b, 2)
    b.slow(-1)
    check("the answer", text_of(b, 1).startswith(STORY))
    check("the answer came at once, not in pieces", b.run("pieces.size") > 5)
    check("what was measured", "60 tokens" in b.run("document.querySelector('.assistant .stats').textContent"))
    check("the end of a cut answer is named", "as many tokens as the settings allow" in b.run("document.querySelector('.end').textContent"))
    check("the context", b.run("byId('context-text').innerText") == "74 / 1,024")
    check("the title", b.run("byId('title').innerText") == "Tell me a short story." and "short story" in b.run("byId('list').innerText"))
    check("what is read aloud", STORY in b.run("byId('status').textContent"))


def stopping(b):
    """Stops an answer when its first text is there: by the button, and by Escape. What was said stays."""
    set_field(b, "max_tokens", "")
    b.slow(20000) # else the bundled model may have written hundreds of characters before the page runs the observer
    for how in ("byId('stop').click()", "document.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }))"):
        before = b.run("pathOf(open).length")
        b.run(f"""(() => {{ const o = new MutationObserver(() => {{ if (live && live.node.content) {{ o.disconnect(); {how}; }} }});
                  o.observe(byId('messages'), {{ subtree: true, childList: true }}); }})()""")
        b.type("And another story, please.")
        b.press("Enter")
        answered(b, before + 2)
        check("a stopped answer", "You stopped this answer" in b.run("[...document.querySelectorAll('article')].pop().textContent"))
        check("its text", 0 < len(text_of(b, before + 1)) < 300)
        check("the server goes on with nothing", b.run("fetch('/v1/status').then(r => r.json()).then(s => s.requests.running)") == 0 or time.sleep(0.3) is None)
    b.slow(-1)


def regenerating(b):
    """Other answers are kept beside the first: 2/2, back to 1/2."""
    first = text_of(b, 1)
    set_field(b, "temperature", "1")
    set_field(b, "seed", "7")
    set_field(b, "max_tokens", "30")
    b.run("document.querySelectorAll('article')[1].querySelector('[aria-label=\"Answer again\"]').click()")
    answered(b, 2)
    second = text_of(b, 1)
    check("another answer", second != first and b.run("document.querySelector('.assistant .versions').textContent") == "2/2")
    b.run("document.querySelector('.assistant [aria-label=\"Previous version\"]').click()")
    b.wait("document.querySelector('.assistant .versions')?.textContent === '1/2'")
    check("the first answer, and what followed it", text_of(b, 1) == first and b.run("pathOf(open).length") == 6)
    set_field(b, "temperature", "0")


def editing(b):
    """An edited question is a branch of its own, with the keyboard alone."""
    b.run("byId('new-chat').click()")
    b.type("Tell me about a dog.")
    b.press("Enter")
    answered(b, 2)
    b.press("ArrowUp")
    b.wait("document.activeElement.closest('.editor')")
    b.run("document.activeElement.value = ''")
    b.type("Tell me about a cat.")
    b.press("Enter")
    answered(b, 2)

    check("the edited question", text_of(b, 0) == "Tell me about a cat." and b.run("document.querySelector('.user .versions').textContent") == "2/2")
    b.run("document.querySelector('.user [aria-label=\"Previous version\"]').click()")
    check("the first question", text_of(b, 0) == "Tell me about a dog.")


def reloading(b):
    """What was said, the settings and the place are there after a reload; so is what had come of an answer."""
    before = b.run("document.querySelector('#messages').textContent")
    b.reload()
    b.wait("document.querySelectorAll('article').length === 2")
    check("the conversation", b.run("document.querySelector('#messages').textContent") == before)
    check("the settings", b.run("byId('f-temperature').value") == "0" and b.run("conversations.size") == 2)
    set_field(b, "max_tokens", "")
    b.type("A long story, please.")
    b.press("Enter")
    b.wait("live && live.node.content.length > 20 || live === null && pathOf(open).length === 4")
    b.reload()
    b.wait("document.querySelectorAll('article').length >= 3")
    check("the question of the answer that was cut off", text_of(b, 2) == "A long story, please.")


def hostile(b):
    """Nothing of a message becomes HTML, runs, or leads to anything but http, https and mailto."""
    load(b, [{"role": "user", "content": HOSTILE}, {"role": "assistant", "content": HOSTILE, "reasoning_content": HOSTILE}], 2)
    b.run("document.querySelector('details').open = true")
    b.wait("document.querySelector('.reasoning-text').childNodes.length > 0")
    bad = b.run("""[...document.querySelectorAll('#messages *')].filter(e => ['SCRIPT', 'IMG', 'IFRAME', 'STYLE', 'OBJECT', 'MATH', 'FORM'].includes(e.tagName) ||
        e.tagName === 'A' && !/^(https?|mailto):/.test(e.href) || [...e.attributes].some(a => a.name.startsWith('on'))).map(e => e.outerHTML)""")
    check(f"elements of a message: {bad}", bad == [])
    check("links", b.run("document.querySelectorAll('#messages .text a').length") >= 3)
    check("text of the user", b.run("document.querySelector('.user .text').textContent") == HOSTILE.strip() or "<script>" in text_of(b, 0))
    check("the title", b.run("document.title") != "owned")
    nothing = b.run("""(() => { try { document.body.innerHTML = '<b>x</b>'; return 'innerHTML was allowed'; } catch { return ''; } })()""")
    check(nothing, nothing == "")


def large(b):
    """Texts that are made to be slow: each is shown within a second."""
    texts = {"table": "|a|b|\n|-|-|\n" + "|x|y|\n" * 20000, "wide table": "|a" * 3000 + "|\n" + "|-" * 3000 + "|\n" + "|c" * 3000,
             "lists": "".join("  " * k + "- x\n" for k in range(2000)), "quotes": ">" * 5000 + " x", "emphasis": "*a " * 20000 + "a* " * 20000,
             "marks": "**_~~" * 20000, "brackets": "[" * 50000 + "](" * 20000, "ticks": "".join("`" * (k % 300) + " " for k in range(2000)),
             "links": "[a](" * 20000, "code": "```c\n" + "/*\"'`" * 20000, "one line": "x" * 390000, "many lines": "x\n\n" * 20000}
    for name, text in texts.items():
        took = b.run(f"(() => {{ const box = el('div'), at = performance.now(); renderMarkdown(box, {json.dumps(text)}); return performance.now() - at; }})()")
        check(f"{name} takes {took:.0f} ms", took < 1500)
    deepest = b.run("(() => { const box = el('div'); renderMarkdown(box, '>'.repeat(5000) + '*a '.repeat(5000) + 'a* '.repeat(5000));"
                    "let most = 0; for (const e of box.querySelectorAll('*')) { let d = 0; for (let n = e; n !== box; n = n.parentNode) d++; most = Math.max(most, d); } return most; })()")
    check(f"elements are nested {deepest} deep", deepest < 60)


def markdown(b):
    """What models write, against what must come of it."""
    rows = [("**a** *b* ***c*** ~~d~~ `e*f*`", "<p><strong>a</strong> <em>b</em> <em><strong>c</strong></em> <del>d</del> <code>e*f*</code></p>"),
            ("snake_case_name 2 * 3 * 4", "<p>snake_case_name 2 * 3 * 4</p>"), ("a\nb", "<p>a<br>b</p>"), ("\\*a\\*", "<p>*a*</p>"),
            ("1. a\n   - b\n   - c\n2. d", "<ol><li>a<ul><li>b</li><li>c</li></ul></li><li>d</li></ol>"),
            ("3) x", '<ol start="3"><li>x</li></ol>'), ("- a\n- b\n\ntext", "<ul><li>a</li><li>b</li></ul><p>text</p>"),
            ("> a\n> b", "<blockquote><p>a<br>b</p></blockquote>"), ("---", "<hr>"), ("## a ##\nb", "<h4>a</h4><p>b</p>"),
            ("| a | b |\n|--|-:|\n| `x|y` | 1 |", "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td><code>x|y</code></td><td>1</td></tr></tbody></table>"),
            ("<b>&amp;</b>", "<p>&lt;b&gt;&amp;amp;&lt;/b&gt;</p>"), ("a | b", "<p>a | b</p>"), ("1986. A year", '<ol start="1986"><li>A year</li></ol>'),
            ("see https://a.b/c_(d).", "<p>see <a>https://a.b/c_(d)</a>.</p>"), ("[x](https://a.b)", "<p><a>x</a></p>")]
    for text, wanted in rows:
        html = b.run(f"""(() => {{ const box = el('div'); renderMarkdown(box, {json.dumps(text)});
            for (const e of box.querySelectorAll('*')) for (const a of [...e.attributes]) if (a.name !== 'start') e.removeAttribute(a.name);
            return box.innerHTML.replaceAll('<div>', '').replaceAll('</div>', ''); }})()""")
        check(f"{text!r} becomes {html}, not {wanted}", html == wanted)
    text = "# a\n\n- b\n- c\n\n```py\nx = 1\n```\n\n| a |\n|---|\n| b |\n\nend **bold**"
    same = b.run(f"""(() => {{ const whole = el('div'), grown = el('div'), text = {json.dumps(text)}; renderMarkdown(whole, text);
        for (let n = 0; n <= text.length; n++) renderMarkdown(grown, text.slice(0, n)); return whole.innerHTML === grown.innerHTML; }})()""")
    check("a text that grows becomes what it becomes at once", same)


FORMULAS = [ # a source, and the elements that it becomes: their names, and texts
    ("a^2", "msup(mi:a mn:2)"), ("x_i^{10}", "msubsup(mi:x mi:i mrow(mn:10))"), ("x^10", "msup(mi:x mn:1) mn:0"), ("f'(x)", "msup(mi:f mo:′) mo:( mi:x mo:))"[:-1]),
    ("\\frac{1}{2}", "mfrac(mrow(mn:1) mrow(mn:2))"), ("\\frac12", "mfrac(mn:1 mn:2)"), ("\\sqrt[3]{x}", "mroot(mrow(mi:x) mn:3)"), ("3.14 - 1", "mn:3.14 mo:− mn:1"),
    ("\\sum_{i=1}^n i", "munderover(mo:∑ mrow(mi:i mo:= mn:1) mi:n) mi:i"), ("\\int_0^1 x\\,dx", "msubsup(mo:∫ mn:0 mn:1) mi:x mspace mi:d mi:x"),
    ("\\left( x \\right]", "mrow(mo:( mi:x mo:])"), ("\\left. x \\right|", "mrow(mi:x mo:|)"), ("\\{1\\}", "mo:{ mn:1 mo:}"), ("\\mathbb{R}", "mrow(mi:ℝ)"),
    ("\\text{for all } x", "mtext:for all\u00a0 mi:x"), ("\\mathrm{rank}", "mi:rank"), ("\\alpha \\le \\Omega", "mi:α mo:≤ mi:Ω"), ("\\hat{x}", "mover(mrow(mi:x) mo:^)"),
    ("\\begin{pmatrix} a & b \\\\ c & d \\end{pmatrix}", "mrow(mo:( mtable(mtr(mtd(mi:a) mtd(mi:b)) mtr(mtd(mi:c) mtd(mi:d))) mo:))"),
    ("\\begin{cases} 1 & x \\\\ 2 & y \\end{cases}", "mrow(mo:{ mtable(mtr(mtd(mn:1) mtd(mi:x)) mtr(mtd(mn:2) mtd(mi:y))))"),
    ("a \\\\ b", "mtable(mtr(mtd(mi:a)) mtr(mtd(mi:b)))"), ("\\foo x", "mtext:\\foo mi:x"), ("\\constructor", "mtext:\\constructor"), ("\\left\\toString x", "mrow(mo:\\toString mi:x)"),
    ("{ a", "mrow(mi:a)"), ("a }b", "mi:a mi:b"), ("", ""), ("\\lim_{n \\to \\infty}", "munder(mo:lim mrow(mi:n mo:→ mi:∞))"), ("p \\not= q", "mi:p mo:=\u0338 mi:q"),
    ("\\binom{n}{k}", "mrow(mo:( mfrac(mrow(mi:n) mrow(mi:k)) mo:))"), ("50\\%", "mn:50 mi:%"),
]


def formulas(b):
    """Formulas become MathML; money does not; what is not known stays as it is written; nothing is slow."""
    b.run("""window.tree = (n) => n.nodeType === 3 ? n.textContent : n.childElementCount || n.childNodes.length === 0 ?
        n.localName + (n.childElementCount ? '(' + [...n.childNodes].map(tree).join(' ') + ')' : '') : n.localName + ':' + n.textContent""")
    for source, wanted in FORMULAS:
        found = b.run(f"[...renderFormula({json.dumps(source)}, false).childNodes].map(tree).join(' ')")
        check(f"{source!r} becomes {found}, not {wanted}", found == wanted)
    rows = [("Inline \\( a^2 \\) and $b_{ij} _c_$.", 2, "Inline  and ."), ("\\[ x \\]", 1, ""), ("$$\na\n- b\n$$\ntext", 1, "text"), ("$5 and $10, or $ 4", 0, None),
            ("a $x$b `$y$` $z", 1, "a b $y$ $z"), ("\\$x$ y", 0, "$x$ y"), ("$$open", 0, "$$open"), ("- $a$\n- $$b$$", 2, ""), ("| $a$ |\n|---|\n| $b$ |", 2, ""),
            ("text\n$$x$$\nmore", 1, "textmore"), ("\\(\\)", 0, "()"), ("**$a$ b**", 1, " b")]
    for text, n, left in rows:
        found = b.run(f"(() => {{ const box = el('div'); renderMarkdown(box, {json.dumps(text)}); const all = box.querySelectorAll('math'); const n = all.length;"
                      " for (const m of all) m.remove(); return [n, box.textContent]; })()")
        check(f"{text!r} has {found}, not {n}, {left!r}", found[0] == n and (left is None or found[1].strip() == left.strip()))
    text = "a $x^2$ b\n\n$$\n\\frac{1}{2}\n$$\n\nend \\[ y \\] $1"
    same = b.run(f"""(() => {{ const whole = el('div'), grown = el('div'), text = {json.dumps(text)}; renderMarkdown(whole, text);
        for (let n = 0; n <= text.length; n++) renderMarkdown(grown, text.slice(0, n)); return whole.innerHTML === grown.innerHTML; }})()""")
    check("a formula that grows becomes what it becomes at once", same)
    slow = {"dollars": "$" * 60000, "pairs": "$a$ " * 20000, "open": "\\( " * 30000, "blocks": "$$\n" * 20000, "groups": "$" + "{" * 3000 + "}" * 3000 + "$",
            "fractions": "$" + "\\frac{" * 2000 + "$", "scripts": "$" + "x^" * 4000 + "$", "long": "$" + "x+" * 30000 + "$", "tables": "$" + "\\begin{matrix}" * 500 + "$",
            "left": "$" + "\\left(" * 3000 + "$", "substacks": "$" + "\\substack{" * 2900 + "$",
            "styles": "$" + "\\displaystyle " * 2900 + "$"}
    for name, t in slow.items():
        took = b.run(f"(() => {{ const box = el('div'), at = performance.now(); renderMarkdown(box, {json.dumps(t)}); return performance.now() - at; }})()")
        check(f"{name} take {took:.0f} ms", took < 1500)


def files(b):
    """Text files go with a message, a long pasted text becomes one, what is no text is refused."""
    b.run("startNew()")
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("notes.txt", "The cat is blue."), ("picture.png", b"\x89PNG\0\xff\xfe")):
            with open(os.path.join(folder, name), "wb") as f:
                f.write(content if isinstance(content, bytes) else content.encode())
        b.choose_file("#attach-file", os.path.join(folder, "notes.txt"))
        b.wait("document.querySelectorAll('#attached .file').length === 1")
        b.choose_file("#attach-file", os.path.join(folder, "picture.png"))
        b.wait("[...document.querySelectorAll('.toast')].some(t => t.innerText.includes('picture.png was not attached'))")
    check("a message of files alone can be sent", b.run("!byId('send').disabled"))
    paste = """(() => {{ const data = new DataTransfer(); data.setData('text/plain', {text}); byId('prompt').dispatchEvent(new ClipboardEvent('paste', {{ clipboardData: data, bubbles: true,
        cancelable: true }})); }})()"""
    b.run(paste.format(text="'x y '.repeat(2000)"))
    check("a long pasted text is a file", b.run("attached.length === 2 && attached[1].name === 'pasted.txt' && byId('prompt').value === ''"))
    b.run("[...document.querySelectorAll('.toast .plain')].pop().click()")
    check("and a text again", b.run("attached.length === 1 && byId('prompt').value.length === 8000"))
    b.run("byId('prompt').value = 'What is blue?'")
    set_field(b, "max_tokens", "5")
    b.run("byId('send').click()")
    answered(b, 2)
    check("what is sent", b.run("messagesOf(open, pathOf(open))[0].content") == '<file name="notes.txt">\nThe cat is blue.\n</file>\n\nWhat is blue?')
    check("what is shown", b.run("document.querySelector('.user .file-box').innerText").startswith("notes.txt") and text_of(b, 0) == "What is blue?")
    check("the box is empty", b.run("attached.length === 0 && byId('attached').hidden"))


def continuing(b):
    """A cut answer goes on in its place, as if it had not been cut."""
    set_field(b, "max_tokens", "12")
    b.run("startNew()")
    b.type("Tell me a short story.")
    b.press("Enter")
    answered(b, 2)
    first = text_of(b, 1)
    set_field(b, "max_tokens", "40")
    b.run("[...document.querySelectorAll('.end button')].find(k => k.innerText === 'Continue').click()")
    b.wait(f"live === null && pathOf(open)[1].content.length > {len(first) + 40}", "a continued answer")
    whole = text_of(b, 1)
    check("it goes on", whole.startswith(first) and b.run("pathOf(open).length") == 2 and b.run("pathOf(open)[1].stats.tokens") == 52)
    b.run("startNew()")
    set_field(b, "max_tokens", "52")
    b.type("Tell me a short story.")
    b.press("Enter")
    answered(b, 2)
    check(f"the same as at once: {whole!r}", text_of(b, 1) == whole)


def branching(b):
    """A conversation of its own from a message on; the first one stays as it was."""
    n = b.run("conversations.size")
    text = text_of(b, 1)
    b.run("document.querySelectorAll('article')[1].querySelector('[aria-label=\"Branch into a new conversation\"]').click()")
    b.wait(f"conversations.size === {n + 1} && open.title.endsWith('(branch)')")
    check("the messages up to it", text_of(b, 1) == text and b.run("pathOf(open).length") == 2)
    set_field(b, "max_tokens", "5")
    b.type("And then?")
    b.press("Enter")
    answered(b, 4)
    check("the first conversation", b.run("[...conversations.values()].filter(c => c.title === 'Tell me a short story.').every(c => !Object.values(c.nodes).some(n => n.content === 'And then?'))"))


def set_value(b, name, value):
    b.run(f"(() => {{ const f = byId('{name}'); f.value = {json.dumps(value)}; f.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()")


def formats(b):
    """JSON of a schema; a schema that is none is not sent."""
    b.run("startNew()")
    set_field(b, "max_tokens", "60")
    set_value(b, "answer-format", "json_schema")
    set_value(b, "schema", "{")
    b.type("A cat.")
    b.press("Enter")
    check("a broken schema is not sent", b.run("byId('settings').open && pathOf(open).length === 0 && document.activeElement.id === 'schema'"))
    check("what is wrong", b.run("byId('schema-problem').innerText.length > 5 && byId('schema').getAttribute('aria-invalid') === 'true'"))
    set_value(b, "schema", '{"type": "object", "properties": {"name": {"enum": ["cat", "dog"]}}, "required": ["name"]}')
    b.run("byId('settings').close(); byId('send').click()")
    answered(b, 2)
    check("the answer has the schema", json.loads(text_of(b, 1))["name"] in ("cat", "dog"))
    check("the composer says so", b.run("byId('active').innerText") == "schema")


def tool_calls(b):
    """Definitions of tools are sent; calls are shown; the user gives their results; an export has them."""
    set_value(b, "answer-format", "")
    set_value(b, "tools", '[{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"enum": ["Paris"]}}, "required": ["city"]}}, 3]')
    check("a tool without a name", "tool 2 has no" in b.run("byId('tools-problem').textContent").lower() or "Tool 2" in b.run("byId('tools-problem').textContent"))
    set_value(b, "tools", '[{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"enum": ["Paris"]}}, "required": ["city"]}}]')
    check("the composer says so", b.run("byId('active').innerText") == "1 tool")
    b.run("window.streamed = streamAnswer; streamAnswer = (path, body, ...rest) => streamed(path, { ...body, parallel_tool_calls: false, tool_choice: body.messages.length === 1 ? 'required' : 'none' }, ...rest)")
    b.run("startNew()")
    set_field(b, "max_tokens", "")
    b.type("The weather?")
    b.press("Enter")
    answered(b, 2)
    check("the call", b.run("document.querySelector('.call .call-name').innerText") == "weather" and '"Paris"' in b.run("document.querySelector('.call pre').innerText"))
    set_field(b, "max_tokens", "8")
    b.run("document.querySelector('.results textarea').value = 'Sunny, 22 degrees.'; document.querySelector('.results button').click()")
    answered(b, 4)
    sent = b.run("messagesOf(open, pathOf(open))")
    check("call and result are sent", sent[1]["tool_calls"][0]["function"]["name"] == "weather" and sent[2]["role"] == "tool" and
          sent[2]["tool_call_id"] == sent[1]["tool_calls"][0]["id"] and sent[2]["content"] == "Sunny, 22 degrees.")
    check("the result is shown", b.run("document.querySelector('.message.tool').ariaLabel") == "Result of weather" and b.run("document.querySelectorAll('.results').length") == 0)
    text = b.run("markdownOf(open)")
    check("the export as Markdown", all(t in text for t in ("# The weather?", "## You", "Call of `weather`", "```json", "## Result of weather", "Sunny, 22 degrees.")))
    load(b, b.run("exportText([open])"), 4)
    check("an import has calls", b.run("pathOf(open)[1].calls[0].name === 'weather' && pathOf(open)[2].call === pathOf(open)[1].calls[0].id"))
    b.run("streamAnswer = streamed")
    set_value(b, "tools", "")


def preset_steps(b):
    """Settings under a name; a preset brings them back."""
    set_field(b, "temperature", "0.5")
    set_value(b, "system", "Be short.")
    b.run("byId('settings').showModal(); byId('save-preset').click()")
    b.run("byId('preset-name').value = 'Brief'; byId('keep-preset').click()")
    b.run("byId('reset-settings').click()")
    check("reset", b.run("byId('f-temperature').value === '' && byId('system').value === ''"))
    b.run("(() => { const s = byId('preset'); s.value = 'Brief'; s.dispatchEvent(new Event('change', { bubbles: true })); })()")
    check("the preset", b.run("byId('f-temperature').value === '0.5' && byId('system').value === 'Be short.' && readSetting('sampling').temperature === '0.5'"))
    b.run("byId('delete-preset').click()")
    check("deleted", b.run("presets().length") == 0)
    b.run("byId('reset-settings').click(); byId('settings').close(); byId('prompt').focus()")
    set_field(b, "temperature", "0")


def long_conversation(b):
    """500 messages are imported; past the context the page says so and offers what to drop, and then goes on."""
    messages = [{"role": "user" if k % 2 == 0 else "assistant", "content": f"Tell me about cat number {k}." if k % 2 == 0 else
                 f"Once there was a little cat who lived by the river, number {k}."} for k in range(500)]
    at = time.monotonic()
    load(b, {"messages": messages, "title": "Many cats"}, 500)
    b.wait("document.querySelectorAll('article').length === 500 && document.querySelector('.room .primary')", "the offer for a long conversation")
    check("500 messages are slow", time.monotonic() - at < 6)
    check("the context is said to be full", b.run("byId('context').className") == "full" and "/ 1,024" in b.run("byId('context-text').innerText"))
    b.run("[...document.querySelectorAll('.room button')].pop().click()")
    set_field(b, "max_tokens", "20")
    b.type("And the last cat?")
    b.press("Enter")
    b.wait("document.querySelector('.room .primary')", "what may be left out")
    check("the offer", "longer than the model's context" in b.run("document.querySelector('.room').innerText"))
    b.run("document.querySelector('.room .primary').click()")
    answered(b, 502)
    check("the answer after it", len(text_of(b, 501)) > 10 and b.run("document.querySelectorAll('article.out').length") > 300)
    check("the first message stays on the page", text_of(b, 0) == "Tell me about cat number 0.")
    used = b.run("open.nodes[open.leaf].stats.used")
    check(f"{used} tokens were used", 500 < used <= 1024)


def exporting(b):
    """An export that is imported again is the same conversation, with its branches."""
    text = b.run("exportText([[...conversations.values()].find(c => c.title === 'Tell me a short story.')])")
    n = b.run("conversations.size")
    load(b, text, 6)
    check("a copy", b.run("conversations.size") == n + 1 and STORY in text_of(b, 1) and b.run("Object.keys(open.nodes).length") == 7)
    b.choose_file("#import-file", __file__)
    b.wait("[...document.querySelectorAll('.toast')].some(t => t.innerText.includes('was not imported'))")
    before = b.run("conversations.size")
    b.run("removeConversation(open)")
    b.wait(f"conversations.size === {before - 1} && [...document.querySelectorAll('.toast .plain')].length > 0")
    b.run("[...document.querySelectorAll('.toast .plain')].pop().click()")
    b.wait(f"conversations.size === {before}")


def phone(b):
    """On a narrow screen nothing is wider than it, and the list opens and closes."""
    b.size(390, 844, True)
    b.run("openConversation([...conversations.values()].find(c => pathOf(c).some(n => n.content.includes('<script>'))))")
    time.sleep(0.2)
    check("the page is wider than the screen", b.run("document.documentElement.scrollWidth <= innerWidth && byId('scroll').scrollWidth <= innerWidth"))
    b.run("byId('open-sidebar').click()")
    b.wait("getComputedStyle(byId('sidebar')).visibility === 'visible' && byId('new-chat') === document.activeElement")
    b.press("Escape")
    b.wait("getComputedStyle(byId('sidebar')).visibility === 'hidden'")
    b.size(1400, 900)


def key_entry(b, url, key):
    """A server with keys: the page asks for one, says that one is wrong, and goes on with the right one."""
    b.origin = url
    problems, b.problems = b.problems, []
    b.open(url + "/")
    b.wait("byId('key-dialog').open", "the question for a key")
    for given in ("wrong", key):
        b.run("byId('key').focus()")
        b.type(given)
        b.press("Enter")
        b.wait("byId('key-dialog').open && byId('key-why').innerText.includes('refused this key')" if given == "wrong" else "models.length === 1")
    b.type("Tell me a short story.")
    b.press("Enter")
    b.wait("live === null && pathOf(open).length === 2 && pathOf(open)[1].content.length > 20", "an answer with a key")
    check("the key is in no conversation", key not in b.run("exportText([...conversations.values()])"))
    b.problems = problems + [p for p in b.problems if "401" not in p]


def shoot(b, folder):
    """Pictures for people to look at."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(os.path.dirname(__file__), "page_sample.json"), encoding="utf-8") as f:
        sample = json.load(f)
    load(b, sample, len(sample["messages"]))
    b.run("document.querySelector('#toasts').replaceChildren()")
    b.run("{ const seen = new Set(); for (const c of [...conversations.values()]) { if (c.title.startsWith('<') || seen.has(c.title)) dropConversation(c.id); seen.add(c.title); } showList(); }")
    for name, width, dark, mobile in (("wide", 1400, False, False), ("wide-dark", 1400, True, False), ("narrow", 390, False, True), ("narrow-dark", 390, True, True)):
        b.size(width, 844 if mobile else 900, mobile)
        b.dark(dark)
        for place, script in (("top", "byId('scroll').scrollTop = 0"), ("end", "scrollToEnd()")):
            b.run(script)
            time.sleep(0.3)
            b.shot(f"{folder}/{name}-{place}.png")
        b.run("startNew()")
        time.sleep(0.5)
        b.shot(f"{folder}/{name}-new.png")
        b.run("byId('settings').showModal()")
        time.sleep(0.3)
        b.shot(f"{folder}/{name}-settings.png")
        b.run("byId('settings').close(); byId('prompt').focus(); openConversation([...conversations.values()].find(c => c.title.startsWith('Counting')))")
    b.size(1400, 900)
    b.dark(False)
    b.run("openConversation([...conversations.values()].find(c => c.title === 'Many cats'))")
    time.sleep(0.3)
    b.shot(f"{folder}/long.png")


def main():
    args = sys.argv[1:]
    shots = args[1] if args[0] == "--shots" else None
    url, with_key, key = (args[2:] if shots else args) + [None] * (3 - len(args[2:] if shots else args))
    b = Browser(url)
    try:
        b.size(1400, 900)
        b.dark(False)
        start(b, url)
        steps = [first_message, stopping, regenerating, editing, reloading, hostile, large, markdown, formulas, files, continuing, branching, formats, tool_calls, preset_steps, long_conversation, exporting, phone]
        for step in steps:
            at = time.monotonic()
            step(b)
            print(f"{step.__name__} good ({time.monotonic() - at:.1f} s)", flush=True)
        if shots:
            shoot(b, shots)
        # what the test itself provoked: a prompt that is too long, and an attempt to write HTML
        expected = [p for p in b.problems if "400 (Bad Request)" in p or "requires 'TrustedHTML' assignment" in p]
        check(f"expected 2 complaints of the browser: {expected}", len(expected) == 2)
        b.problems = [p for p in b.problems if p not in expected]
        if with_key:
            key_entry(b, with_key, key)
            print("key_entry good", flush=True)
        check(f"what the browser complained about: {b.problems}", b.problems == [])
    finally:
        b.close()


main()
