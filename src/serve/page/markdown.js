/* Markdown of answers as DOM nodes. The subset of CommonMark and GitHub's tables that models write: headings,
   lists, quotes, code, tables, rules, emphasis, links, and formulas (formula.js). HTML is text here like everything else; pictures become
   links, because the page loads nothing from elsewhere; links are http, https and mailto only.

   Time is linear in the length of the text and the depth of what is nested is bounded, whatever the text is. */

const MOST_DEPTH = 12; /* of lists and quotes, and of emphasis */
const MOST_CELLS = 4000; /* of a table; the rows behind them are shown as text */
const MOST_MARKDOWN = 400000; /* characters; a longer text is shown as it is */

/* ---- blocks ---- */

const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const MARKER = /^( *)([-*+]|\d{1,9}[.)])( +|$)/;
const RULE = /^ {0,3}([-*_])(?: *\1){2,} *$/;

const indentOf = (line) => line.length - line.trimStart().length;
const isHeading = (line) => /^ {0,3}#{1,6}(?: |$)/.test(line);
const startsBlock = (line) => FENCE.test(line) || isHeading(line) || RULE.test(line) || /^ {0,3}>/.test(line);
const endsParagraph = (lines, j) => startsBlock(lines[j]) || isTable(lines, j) || takeFormula(lines, j) !== null;

/* The cells of a table's row; a bar behind a backslash, or in a code span, is a character. */
function cellsOf(line) {
  const cells = [];
  let cell = "", code = false;
  const text = line.trim();
  for (let i = text[0] === "|" ? 1 : 0; i < text.length; i++) {
    if (text[i] === "\\" && text[i + 1] === "|") cell += text[++i];
    else if (text[i] === "|" && !code) cells.push(cell.trim()), (cell = "");
    else {
      if (text[i] === "`") code = !code && text.indexOf("`", i + 1) > 0;
      cell += text[i];
    }
  }
  if (cell.trim() !== "") cells.push(cell.trim());
  return cells;
}

function isTable(lines, i) {
  if (!lines[i].includes("|") || i + 1 >= lines.length || !/^[\s|:-]+$/.test(lines[i + 1]) || !lines[i + 1].includes("-")) return false;
  const marks = cellsOf(lines[i + 1]);
  return marks.length > 0 && marks.every((c) => /^:?-+:?$/.test(c)) && cellsOf(lines[i]).length === marks.length;
}

/* Takes the block that begins at lines[i]: the node's data and where the next one begins. */
function takeFence(lines, i) {
  const [, mark, info] = FENCE.exec(lines[i]);
  const body = [], indent = indentOf(lines[i]);
  let j = i + 1, closed = false;
  for (; j < lines.length && !closed; j++) {
    const line = lines[j].trim();
    closed = line.length >= mark.length && line[0] === mark[0] && line === mark[0].repeat(line.length);
    if (!closed) body.push(lines[j].slice(Math.min(indent, indentOf(lines[j]))));
  }
  return [{ kind: "code", text: body.join("\n"), language: info.trim().split(/\s/)[0] }, j];
}

function takeQuote(lines, i, depth) {
  const inner = [];
  let j = i;
  for (; j < lines.length && /^ {0,3}>/.test(lines[j]); j++) inner.push(lines[j].replace(/^ {0,3}> ?/, ""));
  return [{ kind: "quote", blocks: parseBlocks(inner, depth + 1) }, j];
}

function takeList(lines, i, depth) {
  const first = MARKER.exec(lines[i]);
  const ordered = /\d/.test(first[2]), base = first[1].length;
  const list = { kind: "list", ordered, start: parseInt(first[2], 10) || 0, loose: false, items: [] };
  let j = i;
  while (j < lines.length) {
    const m = MARKER.exec(lines[j]);
    if (!m || m[1].length > base + 1 || m[1].length < base || /\d/.test(m[2]) !== ordered || RULE.test(lines[j])) break;
    const width = m[0].length;
    const inner = [lines[j].slice(width)];
    let blank = false;
    for (j++; j < lines.length; j++) {
      const line = lines[j], indent = indentOf(line);
      if (line.trim() === "") {
        blank = true;
        inner.push("");
        continue;
      }
      if (indent < base + 2 && (blank || MARKER.test(line) || startsBlock(line))) break;
      inner.push(line.slice(Math.min(indent, width)));
      list.loose = list.loose || blank;
      blank = false;
    }
    list.loose = list.loose || (blank && j < lines.length && MARKER.test(lines[j]) && indentOf(lines[j]) <= base + 1);
    list.items.push(parseBlocks(inner, depth + 1));
  }
  return [list, j];
}

function takeTable(lines, i) {
  const marks = cellsOf(lines[i + 1]);
  const align = marks.map((c) => (c.endsWith(":") ? (c[0] === ":" ? "center" : "right") : ""));
  const rows = [], width = marks.length;
  let j = i + 2;
  for (; j < lines.length && lines[j].includes("|") && rows.length * width < MOST_CELLS; j++) rows.push(cellsOf(lines[j]));
  const rest = [];
  for (; j < lines.length && lines[j].includes("|"); j++) rest.push(lines[j]);
  return [{ kind: "table", head: cellsOf(lines[i]), align, rows, rest: rest.join("\n") }, j];
}

function takeParagraph(lines, i) {
  let j = i + 1;
  for (; j < lines.length && lines[j].trim() !== "" && !endsParagraph(lines, j); j++) {
    const m = MARKER.exec(lines[j]);
    if (m && m[0].length < lines[j].length && !/^[2-9]|^1\d/.test(m[2])) break;
  }
  return [{ kind: "paragraph", text: lines.slice(i, j).map((l) => l.trimStart()).join("\n") }, j];
}

function takeHeading(line) {
  const text = line.trim(), level = text.length - text.replace(/^#+/, "").length;
  const body = text.slice(level).trim();
  let end = body.length;
  while (end > 0 && body[end - 1] === "#") end--;
  return { kind: "heading", level, text: end === 0 || body[end - 1] === " " ? body.slice(0, end).trim() : body };
}

function takeBlock(lines, i, depth) {
  const line = lines[i];
  if (FENCE.test(line)) return takeFence(lines, i);
  if (isHeading(line)) return [takeHeading(line), i + 1];
  if (RULE.test(line)) return [{ kind: "rule" }, i + 1];
  if (depth < MOST_DEPTH && /^ {0,3}>/.test(line)) return takeQuote(lines, i, depth);
  if (depth < MOST_DEPTH && MARKER.test(line)) return takeList(lines, i, depth);
  if (isTable(lines, i)) return takeTable(lines, i);
  const formula = takeFormula(lines, i);
  if (formula) return formula;
  if (/^ {4}/.test(line)) {
    let j = i;
    while (j < lines.length && /^ {4}/.test(lines[j])) j++;
    return [{ kind: "code", text: lines.slice(i, j).map((l) => l.slice(4)).join("\n"), language: "" }, j];
  }
  return takeParagraph(lines, i);
}

/* Blocks of lines; `source`, the text of a block, tells whether it has changed. */
function parseBlocks(lines, depth) {
  const blocks = [];
  for (let i = 0; i < lines.length;) {
    if (lines[i].trim() === "") {
      i++;
      continue;
    }
    const [block, next] = takeBlock(lines, i, depth);
    if (depth === 0) block.source = lines.slice(i, next).join("\n");
    blocks.push(block);
    i = next;
  }
  return blocks;
}

const linesOf = (text) =>
  text.replace(/\r\n?/g, "\n").split("\n").map((l) => l.replace(/^[ \t]+/, (s) => s.replace(/\t/g, "    ")));

/* ---- inline ---- */

const SAFE_LINK = /^(?:https?:\/\/|mailto:)[^\s]+$/i;
const BARE_LINK = /https?:\/\/[^\s<>"'`\\|]+/iy;
const PUNCTUATION = /[!-/:-@[-`{-~]/;

function linkTo(url, children) {
  return el("a", { href: url, target: "_blank", rel: "noopener noreferrer nofollow", title: url }, ...children);
}

/* For each [ the place of its ]; -1: none. Code spans are not looked into. */
function matchBrackets(text) {
  const match = new Map(), open = [];
  for (let i = 0; i < text.length; i++) {
    if (text[i] === "\\") i++;
    else if (text[i] === "[") open.push(i);
    else if (text[i] === "]" && open.length) match.set(open.pop(), i);
  }
  return match;
}

/* The destination of a link whose ( is at text[i]: [url, place behind the )], or null. */
function destination(text, i) {
  let depth = 0;
  const most = Math.min(text.length, i + 1000);
  for (let j = i; j < most; j++) {
    if (text[j] === "\n") return null;
    if (text[j] === "\\") j++;
    else if (text[j] === "(") depth++;
    else if (text[j] === ")" && --depth === 0) {
      const inside = text.slice(i + 1, j).trim().replace(/^<([^<>]*)>/, "$1 ");
      return [inside.split(/\s/)[0].replace(/\\([!-/:-@[-`{-~])/g, "$1"), j + 1];
    }
  }
  return null;
}

/* Tokens of a text, in a doubly linked list so that emphasis can wrap a part of it at once. A token has a node,
   or is a run of delimiters: its mark and how many are left of it; `at` grows along the list. */
class Tokens {
  constructor() {
    this.head = { next: null, prev: null, at: 0 };
    this.tail = { next: null, prev: this.head };
    this.n = 0;
    this.head.next = this.tail;
    this.plain = "";
  }
  push(token) {
    this.flush();
    token.at = ++this.n;
    token.prev = this.tail.prev;
    token.next = this.tail;
    token.prev.next = token;
    this.tail.prev = token;
  }
  flush() {
    const text = this.plain;
    this.plain = "";
    if (text) this.push({ node: document.createTextNode(text), depth: 0 });
  }
}

function drop(token) {
  token.prev.next = token.next;
  token.next.prev = token.prev;
}

/* Puts everything between two delimiters into an element. False: it would be nested too deeply. */
function wrap(open, close, tag) {
  let depth = 0;
  for (let t = open.next; t !== close; t = t.next) depth = Math.max(depth, t.depth || 0);
  if (depth >= MOST_DEPTH) return false;
  const node = el(tag);
  for (let t = open.next; t !== close; t = t.next) node.append(t.node || t.mark.repeat(t.left));
  const token = { node, depth: depth + 1, at: open.at, prev: open, next: close };
  open.next = token;
  close.prev = token;
  return true;
}

const flanks = (before, after) => ({
  left: !/\s/.test(after) && (!PUNCTUATION.test(after) || /\s/.test(before) || PUNCTUATION.test(before)),
  right: !/\s/.test(before) && (!PUNCTUATION.test(before) || /\s/.test(after) || PUNCTUATION.test(after)),
});

function pushDelimiters(tokens, text, i) {
  const mark = text[i];
  let j = i;
  while (text[j] === mark) j++;
  const before = text[i - 1] || " ", after = text[j] || " ", side = flanks(before, after);
  const word = mark === "_";
  tokens.push({
    mark, left: j - i, depth: 0,
    opens: side.left && (!word || !side.right || PUNCTUATION.test(before)),
    closes: side.right && (!word || !side.left || PUNCTUATION.test(after)),
  });
  return j;
}

/* The nearest delimiter before `close` that opens what it closes, or null. Tokens up to `bottom` are not looked at. */
function openerOf(close, bottom) {
  for (let t = close.prev; t.at > bottom; t = t.prev)
    if (t.mark === close.mark && t.opens && t.left > 0 && (t.mark !== "~" || (t.left === close.left && t.left <= 2))) return t;
  return null;
}

/* Pairs delimiters. `bottom`: for each mark the token up to which no opener is left, so that a text without
   pairs is read once. What would be nested too deeply stays as it is, and so does what is around it. */
function pairDelimiters(tokens) {
  const bottom = new Map();
  for (let close = tokens.head.next; close !== tokens.tail;) {
    const next = close.next;
    if (!close.mark || !close.closes || close.left === 0) {
      close = next;
      continue;
    }
    const open = openerOf(close, bottom.get(close.mark) || 0);
    const n = open ? (close.mark === "~" ? close.left : Math.min(open.left, close.left, 2)) : 0;
    if (!open || !wrap(open, close, close.mark === "~" ? "del" : n === 2 ? "strong" : "em")) {
      bottom.set(close.mark, open || !close.opens ? close.at : close.prev.at);
      close = next;
      continue;
    }
    open.left -= n;
    close.left -= n;
    if (open.left === 0) drop(open);
    if (close.left === 0) {
      drop(close);
      close = next;
    }
  }
}

/* Takes a code span that begins at text[i]: the place behind it, or 0. `absent` has the lengths of runs that
   nothing closes. */
function takeCodeSpan(tokens, text, i, absent) {
  let n = 0;
  while (text[i + n] === "`") n++;
  for (let j = i + n; !absent.has(n);) {
    j = text.indexOf("`", j);
    if (j < 0) {
      absent.add(n);
      break;
    }
    let k = 0;
    while (text[j + k] === "`") k++;
    if (k === n) {
      let code = text.slice(i + n, j).replace(/\n/g, " ");
      if (code.startsWith(" ") && code.endsWith(" ") && code.trim()) code = code.slice(1, -1);
      tokens.push({ node: el("code", null, code), depth: 0 });
      return j + n;
    }
    j += k;
  }
  tokens.plain += "`".repeat(n);
  return i + n;
}

function takeLink(tokens, text, i, match, depth) {
  const picture = text[i] === "!", from = i + (picture ? 1 : 0), end = match.get(from);
  const to = end !== undefined && text[end + 1] === "(" ? destination(text, end + 1) : null;
  if (!to) return 0;
  const label = text.slice(from + 1, end);
  if (!SAFE_LINK.test(to[0])) tokens.plain += text.slice(i, to[1]);
  else if (picture) tokens.push({ node: linkTo(to[0], [`picture: ${label || to[0]}`]), depth: 0 });
  else tokens.push({ node: linkTo(to[0], [depth < 2 ? inline(label, depth + 1) : label]), depth: 1 });
  return to[1];
}

function takeBareLink(tokens, text, i) {
  BARE_LINK.lastIndex = i;
  const m = BARE_LINK.exec(text);
  if (!m) return 0;
  let url = m[0];
  for (;;) {
    const last = url[url.length - 1];
    if (!/[.,;:!?*_~)\]]/.test(last) || (last === ")" && url.includes("("))) break;
    url = url.slice(0, -1);
  }
  if (!SAFE_LINK.test(url)) return 0;
  tokens.push({ node: linkTo(url, [url]), depth: 0 });
  return i + url.length;
}

/* Takes what is special at text[i]: the place behind it, or 0 where it is a character like others. */
function takeSpecial(tokens, text, i, match, absent, depth) {
  const c = text[i], formula = c === "$" || c === "\\" ? formulaAt(text, i, absent) : null;
  if (formula) return tokens.push({ node: renderFormula(formula.source, formula.display), depth: 0 }), formula.end;
  if (c === "\\" && text[i + 1] === "\n") return tokens.push({ node: el("br"), depth: 0 }), i + 2;
  if (c === "\\" && PUNCTUATION.test(text[i + 1] || " ")) return (tokens.plain += text[i + 1]), i + 2;
  if (c === "`") return takeCodeSpan(tokens, text, i, absent);
  if (c === "*" || c === "_" || c === "~") return pushDelimiters(tokens, text, i);
  if (c === "\n") return tokens.push({ node: el("br"), depth: 0 }), i + 1;
  if (depth > 0) return 0;
  if (c === "[" || (c === "!" && text[i + 1] === "[")) return takeLink(tokens, text, i, match, depth);
  if ((c === "h" || c === "H") && !/\w/.test(text[i - 1] || " ")) return takeBareLink(tokens, text, i);
  return 0;
}

/* The nodes of a paragraph's text. depth: 1 in the text of a link, which has no links. */
function inline(text, depth) {
  const tokens = new Tokens(), match = matchBrackets(text), absent = new Set();
  for (let i = 0; i < text.length;) {
    const next = takeSpecial(tokens, text, i, match, absent, depth);
    if (next === 0) tokens.plain += text[i];
    i = next || i + 1;
  }
  tokens.flush();
  pairDelimiters(tokens);
  const out = document.createDocumentFragment();
  for (let t = tokens.head.next; t !== tokens.tail; t = t.next) out.append(t.node || t.mark.repeat(t.left));
  return out;
}

/* ---- nodes ---- */

function renderTable(block) {
  const cell = (tag, text, k) => el(tag, { class: block.align[k] || null, dir: "auto", scope: tag === "th" ? "col" : null }, inline(text, 0));
  const row = (tag, cells) => el("tr", null, block.align.map((a, k) => cell(tag, cells[k] || "", k)));
  const table = el("table", null, el("thead", null, row("th", block.head)), el("tbody", null, block.rows.map((r) => row("td", r))));
  const box = el("div", { class: "table", tabIndex: 0, role: "region", "aria-label": "Table" }, table);
  return block.rest ? el("div", null, box, el("pre", null, block.rest)) : box;
}

function renderList(block) {
  const items = block.items.map((blocks) => {
    const item = el("li", { dir: "auto" });
    const first = blocks[0], task = first && first.kind === "paragraph" && /^\[[ xX]\] /.exec(first.text);
    if (task) item.append(el("input", { type: "checkbox", disabled: true, checked: task[0][1] !== " ", "aria-label": "done" }), " ");
    if (task) item.className = "task";
    blocks.forEach((b, k) => {
      const text = k === 0 && task ? b.text.slice(4) : b.text;
      if (b.kind === "paragraph" && !block.loose) item.append(inline(text, 0));
      else item.append(renderBlock(k === 0 && task ? { ...b, text } : b));
    });
    return item;
  });
  return el(block.ordered ? "ol" : "ul", block.ordered && block.start !== 1 ? { start: block.start } : null, items);
}

function renderBlock(block) {
  switch (block.kind) {
    case "code": return renderCode(block.text, block.language);
    case "heading": return el("h" + Math.min(block.level + 2, 6), { dir: "auto" }, inline(block.text, 0));
    case "rule": return el("hr");
    case "formula": return el("p", { class: "display" }, renderFormula(block.text, true));
    case "quote": return el("blockquote", null, block.blocks.map(renderBlock));
    case "list": return renderList(block);
    case "table": return renderTable(block);
    default: return el("p", { dir: "auto" }, inline(block.text, 0));
  }
}

/* Shows `text` in `box`. Blocks that have not changed since the last call keep their nodes, so that a stream
   costs what its last block costs. */
function renderMarkdown(box, text) {
  if (text.length > MOST_MARKDOWN) {
    box.blocks = null;
    box.replaceChildren(el("pre", null, text));
    return;
  }
  const old = box.blocks || [], now = parseBlocks(linesOf(text), 0);
  if (!box.blocks) box.replaceChildren();
  let same = 0;
  while (same < old.length && same < now.length && old[same].source === now[same].source) same++;
  while (box.childNodes.length > same) box.lastChild.remove();
  for (const block of now.slice(same)) box.append(renderBlock(block));
  box.blocks = now;
}
