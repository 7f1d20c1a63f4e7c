/* Blocks of code: a label, a button that copies, and colours for comments, texts, numbers and common keywords.
   The colours know no grammar; they help the eye, and what they miss is plain. */

const MOST_COLOURED = 60000; /* characters */
const KEYWORDS = new Set(
  ("abstract and as assert async await auto begin bool boolean break byte case catch char class const continue def default defer del do double " +
   "elif else end enum except export extends extern false final finally float fn for foreach from func function go goto if impl implements import " +
   "in include inline int interface is lambda let long loop match mod mut namespace new nil none None not null of operator or package pass " +
   "private protected pub public raise readonly return select self short signed sizeof static string struct super switch template then this throw " +
   "True False true try type typedef typeof undefined union unless unsafe unsigned until use using var virtual void volatile when where while with yield " +
   "SELECT FROM WHERE INSERT INTO UPDATE DELETE CREATE TABLE JOIN LEFT INNER ON GROUP BY ORDER LIMIT VALUES SET AND OR NOT NULL AS").split(" "));
const NO_COLOURS = new Set(["text", "txt", "plain", "console", "output", "markdown", "md", "log"]);
const HASH_COMMENTS = new Set(["python", "py", "sh", "bash", "shell", "zsh", "ruby", "rb", "yaml", "yml", "toml", "perl", "r", "make", "makefile",
  "cmake", "dockerfile", "ini", "conf", "elixir", "julia", "nix"]);
const DASH_COMMENTS = new Set(["sql", "lua", "haskell", "hs", "ada", "elm"]);

/* Pieces of source text, each alternative of which ends at the end of its line or file at the latest. */
const TEXTS = `"""[^]*?(?:"""|$)|"(?:[^"\\\\\\n]|\\\\.)*"?|'(?:[^'\\\\\\n]|\\\\.)*'?|\`(?:[^\`\\\\]|\\\\[^])*\`?`;
const NUMBERS = "\\b(?:0[xX][0-9a-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\w*";
function piecesOf(language) {
  const comments = HASH_COMMENTS.has(language) ? "#[^\\n]*" : DASH_COMMENTS.has(language) ? "--[^\\n]*" : "//[^\\n]*|/\\*[^]*?(?:\\*/|$)";
  return new RegExp(`(${comments}|<!--[^]*?(?:-->|$))|(${TEXTS})|(${NUMBERS})|([A-Za-z_$][\\w$]*)`, "g");
}

function colour(code, language) {
  const out = document.createDocumentFragment();
  if (NO_COLOURS.has(language) || !language || code.length > MOST_COLOURED) {
    out.append(code);
    return out;
  }
  let at = 0;
  for (const m of code.matchAll(piecesOf(language))) {
    const kind = m[1] ? "c" : m[2] ? "s" : m[3] ? "n" : KEYWORDS.has(m[4]) ? "k" : code[m.index + m[0].length] === "(" ? "f" : "";
    if (!kind) continue;
    out.append(code.slice(at, m.index), el("span", { class: "hl-" + kind }, m[0]));
    at = m.index + m[0].length;
  }
  out.append(code.slice(at));
  return out;
}

function renderCode(text, language) {
  const code = el("code", null, colour(text, language.toLowerCase()));
  const copy = el("button", { type: "button", class: "icon-button small", title: "Copy", "aria-label": "Copy the code" }, icon("copy"));
  copy.addEventListener("click", () => copyText(text, copy));
  return el("figure", { class: "code" },
    el("figcaption", null, el("span", null, language.slice(0, 40) || "text"), copy),
    el("pre", { tabIndex: 0, dir: "ltr" }, code));
}
