/* Formulas: the part of LaTeX's mathematics that models write, as MathML, which browsers draw by themselves. What is not
   known is shown as it is written, so that nothing is lost. Depth and length are bounded. */

const MOST_FORMULA = 6000; /* tokens; a longer formula is shown as its source */
const MOST_NESTED = 40;

function math(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/1998/Math/MathML", tag);
  for (const [name, value] of Object.entries(attributes || {})) if (value !== null && value !== undefined) node.setAttribute(name, value);
  node.append(...children.flat());
  return node;
}
const operator = (text, attributes) => math("mo", attributes, text);
const fence = (text, attributes) => operator(text, { stretchy: "false", ...attributes });
const blank = (em) => math("mspace", { width: em + "em" });
const row = (nodes) => (nodes.length === 1 ? nodes[0] : math("mrow", null, nodes));

/* Commands with their backslash, runs of blanks, characters. */
const texTokens = (source) => source.match(/\\(?:[A-Za-z]+\*?|[^])|\s+|[^]/gu) || [];

const ENVIRONMENTS = {
  matrix: ["", ""], smallmatrix: ["", ""], pmatrix: ["(", ")"], bmatrix: ["[", "]"], Bmatrix: ["{", "}"], vmatrix: ["|", "|"], Vmatrix: ["‖", "‖"],
  array: ["", ""], cases: ["{", ""], rcases: ["", "}"], substack: ["", ""],
};
const ALIGNED = new Set(["aligned", "align", "alignat", "alignedat", "split", "gather", "gathered", "equation", "eqnarray", "multline"]);
const FRACTIONS = { frac: null, dfrac: "true", cfrac: "true", tfrac: "false" };
const TEXTS_OF_FORMULAS = new Set(["text", "textrm", "textbf", "textit", "textsf", "texttt", "textnormal", "mbox", "hbox"]);
const SIZES = { big: 1.2, Big: 1.8, bigg: 2.4, Bigg: 3 };
const SILENT = new Set(["limits", "nolimits", "displaystyle", "textstyle", "scriptstyle", "left", "right", "nonumber", "notag", "label", "mathstrut", "strut", "hfill", "cr", "hline",
  "allowbreak", "relax", "displaylimits"]);
const DELIMITERS = { "\\{": "{", "\\}": "}", "\\|": "‖", "<": "⟨", ">": "⟩", ".": "" };

class Formula {
  constructor(source, depth) {
    this.tokens = texTokens(source);
    this.at = 0;
    this.depth = depth;
    this.alphabet = null;
  }
  peek() {
    while (/^\s/.test(this.tokens[this.at] || "")) this.at++;
    return this.tokens[this.at];
  }
  next() {
    const t = this.peek();
    this.at++;
    return t;
  }
  name() { /* of the next token, if it is a command */
    const t = this.peek();
    return t && t[0] === "\\" ? t.slice(1) : null;
  }

  /* ---- arguments ---- */

  /* The source of an argument in braces, or one token. */
  raw() {
    if (this.peek() !== "{") return this.next() ?? "";
    let text = "", depth = 0;
    for (; this.at < this.tokens.length; ) {
      const t = this.tokens[this.at++];
      if (t === "}" && --depth === 0) break;
      if (depth > 0) text += t;
      if (t === "{") depth++;
    }
    return text;
  }
  optional() {
    if (this.peek() !== "[") return null;
    let text = "";
    for (this.at++; this.at < this.tokens.length && this.tokens[this.at] !== "]"; ) text += this.tokens[this.at++];
    this.at++;
    return text;
  }
  argument() {
    const t = this.peek();
    if (t === undefined) return math("mrow");
    if (/^[0-9]$/.test(t)) return this.at++, math("mn", null, inAlphabet(t, this.alphabet)); /* one digit, as in x^10 */
    return this.atom() || math("mrow");
  }

  /* ---- rows ---- */

  /* What follows up to one of `stops`, which is not taken, or to the end. */
  row(stops) {
    const nodes = [];
    for (let t; (t = this.peek()) !== undefined && !stops.includes(t); ) {
      if ((t === "\\displaystyle" || t === "\\textstyle") && this.depth < MOST_NESTED) {
        this.at++;
        this.depth++;
        const rest = this.row(stops);
        this.depth--;
        return [...nodes, math("mstyle", { displaystyle: t === "\\displaystyle" }, rest)];
      }
      const before = this.at, node = this.scripts();
      if (node) nodes.push(node);
      if (this.at === before) this.at++;
    }
    return nodes;
  }

  /* An atom with what stands below and above it. */
  scripts() {
    const t = this.peek(), bare = t === "^" || t === "_" || t === "'";
    const base = bare ? math("mrow") : this.atom();
    if (!base) return null;
    let below = null, above = null, limits = base.limits === true, primes = "";
    for (;;) {
      const mark = this.peek();
      if (mark === "\\limits") this.at++, (limits = true);
      else if (mark === "\\nolimits") this.at++, (limits = false);
      else if (mark === "'") this.at++, (primes += "′");
      else if (mark === "_" && !below) this.at++, (below = this.argument());
      else if (mark === "^" && !above) this.at++, (above = this.argument());
      else break;
    }
    if (primes) above = above ? math("mrow", null, operator(primes), above) : operator(primes);
    if (!below && !above) return base;
    const tags = limits ? ["munder", "mover", "munderover"] : ["msub", "msup", "msubsup"];
    const tag = below && above ? tags[2] : below ? tags[0] : tags[1];
    return math(tag, null, base, ...[below, above].filter(Boolean));
  }

  /* ---- atoms ---- */

  atom() {
    if (++this.depth > MOST_NESTED) return this.depth--, math("mtext", null, this.next() ?? "");
    const t = this.next(), node = t === undefined ? null : t === "{" ? this.group() : t[0] === "\\" ? this.command(t.slice(1)) : this.character(t);
    this.depth--;
    return node;
  }
  group() {
    const nodes = this.row(["}"]);
    this.at++;
    return math("mrow", null, nodes);
  }
  number(first) {
    let text = first;
    while (/^[0-9]$/.test(this.tokens[this.at] || "") || (this.tokens[this.at] === "." && /^[0-9]$/.test(this.tokens[this.at + 1] || ""))) text += this.tokens[this.at++];
    return math("mn", null, [...text].map((c) => inAlphabet(c, this.alphabet)).join(""));
  }
  character(t) {
    if (/^[0-9]$/.test(t)) return this.number(t);
    if (/^\p{L}$/u.test(t)) return math("mi", this.alphabet === "mathrm" ? { mathvariant: "normal" } : null, inAlphabet(t, this.alphabet));
    if (t === "}" || t === "&" || t === "$") return null;
    if (t === "~") return blank(0.25);
    if ("()[]|/".includes(t)) return fence(t);
    return operator({ "-": "−", "*": "∗" }[t] || t);
  }

  /* ---- commands ---- */

  command(name) {
    const own = Object.hasOwn;
    if (own(LETTERS, name)) return math("mi", /^[A-Z]/.test(name) || this.alphabet === "mathrm" ? { mathvariant: "normal" } : null, LETTERS[name]);
    if (own(OPERATORS, name)) return "|‖{}[]⟨⟩⌊⌋⌈⌉∣".includes(OPERATORS[name]) ? fence(OPERATORS[name]) : operator(OPERATORS[name]);
    if (own(LARGE, name)) return Object.assign(operator(LARGE[name], { movablelimits: "true" }), { limits: true });
    if (own(INTEGRALS, name)) return operator(INTEGRALS[name]);
    if (FUNCTIONS.has(name)) return math("mrow", null, math("mi", null, name), operator("\u2061"), this.peek() === "(" || this.peek() === "\\left" ? [] : [blank(0.12)]);
    if (LIMITS.has(name)) return Object.assign(operator(name.replace(/^(lim|arg)(?=.)/, "$1 "), { movablelimits: "true", form: "prefix" }), { limits: true });
    if (own(SPACES, name)) return name === "hspace" && this.raw(), blank(SPACES[name]);
    if (own(FRACTIONS, name)) return this.fraction(FRACTIONS[name]);
    if (own(ACCENTS, name)) return math("mover", { accent: "true" }, this.argument(), fence(ACCENTS[name]));
    if (own(WIDE, name)) return Object.assign(math("mover", { accent: "true" }, this.argument(), operator(WIDE[name], { stretchy: "true" })), { limits: name === "overbrace" });
    if (own(BELOW, name)) return Object.assign(math("munder", { accentunder: "true" }, this.argument(), operator(BELOW[name], { stretchy: "true" })), { limits: name === "underbrace" });
    if (TEXTS_OF_FORMULAS.has(name)) return math("mtext", { class: { textbf: "bold", textit: "slanted" }[name] }, this.raw().replace(/\\([ _%&#{}$])/g, "$1").replace(/^\s|\s$/g, "\u00a0"));
    if (own(ALPHABETS, name) || name === "mathrm" || name === "mathit" || name === "mathnormal") return this.lettered(name);
    return this.special(name);
  }
  fraction(display) {
    const node = math("mfrac", null, this.argument(), this.argument());
    return display ? math("mstyle", { displaystyle: display }, node) : node;
  }
  /* An argument in another alphabet; a word in upright letters is one identifier. */
  lettered(name) {
    const from = this.at, was = this.alphabet, text = this.raw();
    if (name === "mathrm" && /^[\p{L}\s]{2,}$/u.test(text)) return math("mi", null, text.trim());
    this.at = from;
    this.alphabet = name === "mathit" || name === "mathnormal" ? null : name;
    const node = this.argument();
    this.alphabet = was;
    return node;
  }
  special(name) {
    const size = /^(big|Big|bigg|Bigg)[lrm]?$/.exec(name);
    if (size) return operator(this.delimiter(), { minsize: SIZES[size[1]] + "em", maxsize: SIZES[size[1]] + "em", stretchy: "true" });
    switch (name) {
      case "left": return this.fenced();
      case "middle": return operator(this.delimiter(), { stretchy: "true" });
      case "begin": return this.environment(this.raw().replace("*", ""));
      case "substack": return this.lines(this.raw(), "substack");
      case "sqrt": return this.root();
      case "binom": case "dbinom": case "tbinom":
        return math("mrow", null, operator("("), math("mfrac", { linethickness: "0" }, this.argument(), this.argument()), operator(")"));
      case "overset": case "stackrel": return this.stacked("mover");
      case "underset": return this.stacked("munder");
      case "operatorname": case "operatorname*":
        return Object.assign(operator(this.raw().replace(/\\[,;! ]/g, " ").replace(/[\\{}]/g, ""), { form: "prefix", movablelimits: "true", class: "named" }), { limits: name.endsWith("*") });
      case "boxed": case "fbox": return math("mrow", { class: "boxed" }, this.argument());
      case "phantom": return math("mphantom", null, this.argument());
      case "color": return this.raw(), null;
      case "textcolor": return this.raw(), this.argument();
      case "not": return this.negated();
      case "bmod": return operator("mod", { lspace: "0.3em", rspace: "0.3em" });
      case "mod": return math("mrow", null, blank(1), math("mi", null, "mod"), blank(0.3));
      case "pmod": return math("mrow", null, blank(0.6), fence("("), math("mi", null, "mod"), blank(0.3), this.argument(), fence(")"));
      case "tag": return math("mrow", null, blank(2), math("mtext", null, `(${this.raw()})`));
      case "label": return this.raw(), null;
      case "{": case "}": return fence(name);
      case "|": return fence("‖");
      case "%": case "#": case "&": case "_": case "$": return math("mi", { mathvariant: "normal" }, name);
      case "\\": return this.optional(), blank(1);
      default: return SILENT.has(name) ? null : math("mtext", { class: "unknown" }, "\\" + name);
    }
  }
  root() {
    const degree = this.optional(), inside = this.argument();
    return degree === null ? math("msqrt", null, inside) : math("mroot", null, inside, row(new Formula(degree, this.depth).row([])));
  }
  stacked(tag) {
    const script = this.argument(), base = this.argument();
    return math(tag, null, base, script);
  }
  negated() {
    const node = this.argument();
    if (node.childNodes.length === 1 && node.firstChild.nodeType === Node.TEXT_NODE) node.textContent += "\u0338";
    return node;
  }
  delimiter() {
    const t = this.next() ?? "";
    if (Object.hasOwn(DELIMITERS, t)) return DELIMITERS[t];
    return t[0] === "\\" && Object.hasOwn(OPERATORS, t.slice(1)) ? OPERATORS[t.slice(1)] : t;
  }
  fenced() {
    const open = this.delimiter(), inside = this.row(["\\right"]);
    this.at++;
    const close = this.delimiter(), stretched = (text) => (text ? [operator(text, { stretchy: "true", fence: "true" })] : []);
    return math("mrow", null, stretched(open), inside, stretched(close));
  }

  /* ---- tables ---- */

  /* Rows of cells up to \end or the end. */
  table(kind, align) {
    const rows = [[]], stops = ["&", "\\\\", "\\end", "\\cr"];
    for (;;) {
      const cell = this.row(stops), t = this.next();
      rows[rows.length - 1].push(cell);
      if (t === "\\\\" || t === "\\cr") this.optional(), rows.push([]);
      else if (t !== "&") break;
    }
    const last = rows[rows.length - 1];
    if (rows.length > 1 && last.length === 1 && last[0].length === 0) rows.pop();
    const side = (k) => ({ l: "l", r: "r" })[align[Math.min(k, align.length - 1)]] || null;
    const aligned = ALIGNED.has(kind);
    return math("mtable", { displaystyle: aligned || null, class: aligned ? "aligned" : kind },
      rows.map((cells) => math("mtr", null, cells.map((nodes, k) => math("mtd", { class: aligned ? (kind.startsWith("gather") || kind === "multline" ? null : k % 2 ? "l" : "r") : side(k) }, nodes)))));
  }
  environment(kind) {
    if (!Object.hasOwn(ENVIRONMENTS, kind) && !ALIGNED.has(kind)) return math("mtext", { class: "unknown" }, `\\begin{${kind}}`);
    if (kind === "array") this.optional();
    const align = kind === "array" ? this.raw().replace(/[^lcr]/g, "") : kind.endsWith("cases") ? "l" : "";
    if (kind.startsWith("alignat") || kind === "alignedat") this.raw();
    const table = this.table(kind, align), [open, close] = ENVIRONMENTS[kind] || ["", ""];
    if (this.peek() === "{") this.raw();
    if (!open && !close) return table;
    const stretched = (text) => (text ? [operator(text, { stretchy: "true", fence: "true" })] : []);
    return math("mrow", null, stretched(open), table, stretched(close));
  }
  lines(source, kind) {
    return new Formula(source, this.depth).table(kind, "");
  }
}

/* A formula as an element; `display`: on a line of its own. */
function renderFormula(source, display) {
  const formula = new Formula(source.trim(), 0);
  if (formula.tokens.length > MOST_FORMULA) return el("code", null, source);
  const nodes = formula.row([]), lines = formula.tokens.includes("\\\\") && !formula.tokens.includes("\\begin");
  const inside = lines ? [formula.lines(source.trim(), "gathered")] : nodes;
  const node = math("math", { display: display ? "block" : null, alttext: source.trim() }, inside);
  return display ? el("span", { class: "formula", tabIndex: 0, role: "group", "aria-label": "Formula" }, node) : node;
}

/* ---- where formulas stand in a text ---- */

const CLOSERS = { "\\(": "\\)", "\\[": "\\]", $$: "$$", $: "$" };

/* The formula that begins at text[i]: { source, display, end }, or null. `absent` has closing marks that do not come any more. A
   dollar before a blank is money, as is one whose partner has a blank before it or a digit behind it. */
function formulaAt(text, i, absent) {
  const two = text.slice(i, i + 2), mark = Object.hasOwn(CLOSERS, two) ? two : text[i] === "$" ? "$" : null;
  if (!mark || absent.has(CLOSERS[mark])) return null;
  const from = i + mark.length, close = CLOSERS[mark];
  let end = text.indexOf(close, from);
  while (close[0] === "$" && end > 0 && text[end - 1] === "\\") end = text.indexOf(close, end + 1);
  if (end < 0) return absent.add(close), null;
  if (mark === "$" && (/\s/.test(text[from] || " ") || /\s/.test(text[end - 1]) || /\d/.test(text[end + 1] || ""))) return null;
  const source = text.slice(from, end);
  return source.trim() ? { source, display: mark === "$$" || mark === "\\[", end: end + close.length } : null;
}

const MOST_FORMULA_LINES = 200;

/* A formula that is a block: it begins lines[i] with $$ or \[ and ends a line. [block, next line], or null. */
function takeFormula(lines, i) {
  const begin = /^ {0,3}(\$\$|\\\[)/.exec(lines[i]);
  if (!begin) return null;
  const close = CLOSERS[begin[1]], parts = [];
  for (let j = i; j < lines.length && j - i < MOST_FORMULA_LINES && lines[j].trim() !== ""; j++) {
    const line = j === i ? lines[j].slice(begin[0].length) : lines[j], end = line.indexOf(close);
    parts.push(end < 0 ? line : line.slice(0, end));
    if (end < 0) continue;
    return line.slice(end + close.length).trim() === "" && parts.join("").trim() ? [{ kind: "formula", text: parts.join("\n") }, j + 1] : null;
  }
  return null;
}
