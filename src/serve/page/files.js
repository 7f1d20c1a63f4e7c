/* Files: texts that go with a message, conversations that are imported, and what is exported. */

/* ---- texts that go with a message ---- */

const MOST_FILE = 4e6; /* bytes */
const LONG_PASTE = 4000, MANY_LINES = 80; /* a pasted text of so many characters or lines becomes a file */
let attached = []; /* { name, text } of the next message */

const sizeText = (n) => (n < 1000 ? `${n} B` : n < 1e6 ? `${(n / 1000).toFixed(1)} kB` : `${(n / 1e6).toFixed(1)} MB`);

function showAttached() {
  const box = byId("attached");
  box.hidden = attached.length === 0;
  box.replaceChildren(...attached.map((f) => el("span", { class: "file", role: "listitem" }, icon("page"), el("span", { class: "file-name", title: f.name }, f.name),
    el("small", null, sizeText(f.text.length)), iconButton("close", `Remove ${f.name}`, () => {
      attached = attached.filter((g) => g !== f);
      showAttached();
      byId("prompt").focus();
    }))));
  showBusy();
}

function attach(name, text) {
  attached.push({ name, text });
  showAttached();
  announce(`Attached ${name}`);
}

/* The text of a file; an error says why it is none. */
async function textOf(file) {
  if (file.size > MOST_FILE) throw new Error(`it has ${sizeText(file.size)}, ${sizeText(MOST_FILE)} at most`);
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error("it is no text in UTF-8");
  }
  if (text.includes("\0")) throw new Error("it is no text");
  return text;
}

async function attachFiles(files) {
  for (const file of files) {
    try {
      attach(file.name, await textOf(file));
    } catch (e) {
      toast(`${file.name} was not attached: ${e.message}`);
    }
  }
}

/* Files that were dropped on the page: exports are imported, other texts go with the next message. */
async function takeDropped(files) {
  for (const file of files) {
    const text = /\.jsonl?$/i.test(file.name) ? await textOf(file).catch(() => "") : "";
    let known = false;
    try {
      known = text !== "" && parseImport(text).length > 0;
    } catch { /* it is a text like others */ }
    await (known ? importFiles([file]) : attachFiles([file]));
  }
}

function takePasted(e) {
  const files = [...e.clipboardData.files], text = e.clipboardData.getData("text/plain");
  if (files.length && !text) return e.preventDefault(), attachFiles(files);
  if (text.length < LONG_PASTE && text.split("\n").length < MANY_LINES) return;
  e.preventDefault();
  const n = attached.filter((f) => f.name.startsWith("pasted")).length, file = { name: n ? `pasted-${n + 1}.txt` : "pasted.txt", text };
  attached.push(file);
  showAttached();
  toast("The long text became a file", "Paste it as text", () => {
    attached = attached.filter((f) => f !== file);
    showAttached();
    byId("prompt").setRangeText(text, byId("prompt").selectionStart, byId("prompt").selectionEnd, "end");
    fitPrompt();
  });
}

/* What the model reads of a message: its files, then its text. */
const contentOf = (node) =>
  [...(node.files || []).map((f) => `<file name="${f.name.replaceAll('"', "'")}">\n${f.text}\n</file>`), node.content].filter(Boolean).join("\n\n");

function renderFiles(node) {
  if (!node.files?.length) return null;
  return el("div", { class: "files", role: "list", "aria-label": "Files" }, node.files.map((f) =>
    el("details", { class: "file-box", role: "listitem" }, el("summary", null, icon("page"), el("span", { class: "file-name" }, f.name), el("small", null, sizeText(f.text.length))),
      el("pre", { tabIndex: 0 }, f.text.slice(0, 100000), f.text.length > 100000 ? "\n…" : ""))));
}

/* ---- exports ---- */

const fileName = (c, ending) => (c.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "conversation") + ending;
const exportOpen = () => download(fileName(open, ".json"), exportText([open]), "application/json");
const exportAll = () => download(`linnet-${new Date().toISOString().slice(0, 10)}.json`, exportText([...conversations.values()]), "application/json");
const exportMarkdown = () => download(fileName(open, ".md"), markdownOf(open), "text/markdown");

/* A block of code whose fence is longer than every run of backticks in it. */
function fenced(text, language) {
  const longest = Math.max(2, ...(text.match(/`+/g) || []).map((run) => run.length)), mark = "`".repeat(longest + 1);
  return `${mark}${language}\n${text}\n${mark}`;
}

/* The messages that are shown, as Markdown. */
function markdownOf(c) {
  const parts = [`# ${c.title}`];
  if (c.system.trim()) parts.push("## System", c.system.trim());
  for (const n of pathOf(c)) {
    parts.push(n.role === "user" ? "## You" : n.role === "tool" ? `## Result of ${n.name}` : n.model ? `## Answer of ${n.model}` : "## Answer");
    for (const f of n.files || []) parts.push(`**${f.name}**`, fenced(f.text, ""));
    if (n.reasoning) parts.push(`<details><summary>Thoughts</summary>\n\n${n.reasoning}\n\n</details>`);
    if (n.content) parts.push(n.role === "tool" ? fenced(n.content, "") : n.content);
    for (const call of n.calls || []) parts.push(`Call of \`${call.name}\`:`, fenced(prettyJson(call.arguments), "json"));
    if (n.error) parts.push(`*${n.error}*`);
  }
  return parts.join("\n\n") + "\n";
}

async function importFiles(files) {
  for (const file of files) {
    try {
      const found = parseImport(await file.text());
      for (const c of found) await saveConversation(c);
      if (found.length) openConversation(found[0]);
      toast(`${plural(found.length, "conversation")} imported from ${file.name}`);
    } catch (e) {
      toast(`${file.name} was not imported: ${e.message}`);
    }
  }
  showList();
}
