/* Conversations, kept in the browser (IndexedDB), and the settings (localStorage).

   A conversation is a tree: editing a message or asking for another answer adds a sibling, and nothing is lost.
   What is shown is the path from the root to `leaf`.

     conversation { id, title, created, updated, system, nodes: { id: node }, leaf, named }
     node { id, parent, role, content, reasoning, model, created, stats, finish, error, out, files, calls, call, name }
     files: texts that go with a message of the user; calls: of an answer; call, name: what a message of role tool answers
     out: the message is shown but not sent (it was left out to make room) */

const DATABASE = "linnet", STORE = "conversations";
const conversations = new Map(); /* all, by id */
let database = null; /* null: nothing can be kept, the page works for as long as it is open */
const others = "BroadcastChannel" in window ? new BroadcastChannel("linnet") : null;

const asPromise = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

async function openStore() {
  try {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
    database = await asPromise(request);
    await readStore();
  } catch {
    database = null;
  }
  return database !== null;
}

async function readStore() {
  if (!database) return;
  const all = await asPromise(database.transaction(STORE).objectStore(STORE).getAll());
  conversations.clear();
  for (const c of all) conversations.set(c.id, c);
}

async function saveConversation(c) {
  conversations.set(c.id, c);
  if (!database) return;
  try {
    await asPromise(database.transaction(STORE, "readwrite").objectStore(STORE).put(c));
    others?.postMessage(c.id);
  } catch (e) {
    toast(`This conversation could not be saved in the browser: ${e.message}`);
  }
}

async function dropConversation(id) {
  conversations.delete(id);
  if (database) await asPromise(database.transaction(STORE, "readwrite").objectStore(STORE).delete(id));
  others?.postMessage(id);
}

/* ---- trees ---- */

function newConversation(system) {
  const now = Date.now();
  return { id: uid(), title: "New conversation", created: now, updated: now, system: system || "", nodes: {}, leaf: null, named: false };
}

function addNode(c, parent, role, content) {
  const node = { id: uid(), parent, role, content, created: Date.now() };
  c.nodes[node.id] = node;
  c.leaf = node.id;
  c.updated = node.created;
  return node;
}

/* The nodes that are shown, the first one first. */
function pathOf(c, leaf = c.leaf) {
  const path = [];
  for (let node = c.nodes[leaf]; node; node = c.nodes[node.parent]) path.push(node);
  return path.reverse();
}

/* The nodes with the same parent and role, the oldest first. */
function siblingsOf(c, node) {
  return Object.values(c.nodes).filter((n) => n.parent === node.parent && n.role === node.role).sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1));
}

/* Shows a node, and below it the newest branch. */
function showBranch(c, node) {
  const children = new Map();
  for (const n of Object.values(c.nodes)) {
    const newest = children.get(n.parent);
    if (!newest || n.created >= newest.created) children.set(n.parent, n);
  }
  while (children.has(node.id)) node = children.get(node.id);
  c.leaf = node.id;
}

/* Deletes a message and all that follows it. */
function removeBranch(c, node) {
  const doomed = new Set([node.id]);
  for (let grew = true; grew;) {
    grew = false;
    for (const n of Object.values(c.nodes))
      if (!doomed.has(n.id) && doomed.has(n.parent)) doomed.add(n.id), (grew = true);
  }
  const rest = siblingsOf(c, node).filter((n) => n !== node);
  for (const id of doomed) delete c.nodes[id];
  c.leaf = node.parent;
  if (rest.length) showBranch(c, rest[rest.length - 1]);
}

/* The messages of a request. Reasoning is not sent back: templates leave it out, and it would fill the context. */
function messagesOf(c, path) {
  const messages = c.system.trim() ? [{ role: "system", content: c.system }] : [];
  for (const n of path) {
    if (n.out || n.error || !(n.content || n.calls || n.role !== "assistant")) continue;
    if (n.role === "tool") messages.push({ role: "tool", tool_call_id: n.call, content: n.content });
    else messages.push({ role: n.role, content: contentOf(n), tool_calls: n.calls ? wireCalls(n.calls) : undefined });
  }
  return messages;
}

function titleFrom(text) {
  const line = text.trim().split("\n")[0].replace(/^[#*`>\s]+/, "").trim();
  return line.length > 48 ? line.slice(0, 47).trimEnd() + "…" : line || "New conversation";
}

/* ---- files ---- */

const FORMAT = "linnet-conversations";

function exportText(list) {
  return JSON.stringify({ format: FORMAT, version: 1, exported: new Date().toISOString(), conversations: list }, null, 1);
}

function fromMessages(messages, title) {
  const c = newConversation("");
  let parent = null, at = Date.now() - messages.length;
  for (const m of messages) {
    const parts = Array.isArray(m?.content) ? m.content.map((p) => p?.text).filter((t) => typeof t === "string").join("\n") : m?.content;
    const calls = m?.role === "assistant" ? readCalls(m.tool_calls) : undefined;
    if (typeof parts !== "string" && !calls) throw new Error("a message has no text in `content`");
    if (m.role === "system" || m.role === "developer") c.system = parts;
    else if (m.role === "user" || m.role === "assistant" || m.role === "tool") {
      const node = addNode(c, parent, m.role, parts ?? "");
      if (calls) node.calls = calls;
      if (m.role === "tool") node.call = String(m.tool_call_id ?? ""), (node.name = calledName(c, node));
      node.created = at++;
      if (typeof m.reasoning_content === "string") node.reasoning = m.reasoning_content;
      parent = node.id;
    } else throw new Error(`the role ${JSON.stringify(m.role)} is not known`);
  }
  const first = pathOf(c).find((n) => n.role === "user");
  c.title = typeof title === "string" && title ? title.slice(0, 200) : titleFrom(first ? first.content : "");
  return c;
}

/* The name of the tool whose result a message is. */
function calledName(c, node) {
  for (const n of pathOf(c, node.parent)) for (const k of n.calls || []) if (k.id === node.call) return k.name;
  return "a tool";
}

/* A conversation of an exported file: only what is known and has the right type is taken. */
function fromExport(raw) {
  const c = newConversation(typeof raw.system === "string" ? raw.system : "");
  const text = (v) => (typeof v === "string" ? v : undefined), number = (v) => (Number.isFinite(v) ? v : undefined);
  c.title = text(raw.title)?.slice(0, 200) || c.title;
  c.created = number(raw.created) ?? c.created;
  c.updated = number(raw.updated) ?? c.updated;
  c.named = raw.named === true;
  for (const [id, n] of Object.entries(raw.nodes || {})) {
    if (!["user", "assistant", "tool"].includes(n?.role) || typeof n.content !== "string" || id === "__proto__") throw new Error("a message has no role or no text");
    c.nodes[id] = { id, parent: text(n.parent) ?? null, role: n.role, content: n.content, reasoning: text(n.reasoning), model: text(n.model),
      created: number(n.created) ?? c.created, finish: text(n.finish), out: n.out === true || undefined, calls: readCalls(n.calls), call: text(n.call), name: text(n.name) };
    const files = (Array.isArray(n.files) ? n.files : []).filter((f) => typeof f?.name === "string" && typeof f.text === "string");
    if (files.length) c.nodes[id].files = files.map((f) => ({ name: f.name, text: f.text }));
    const s = n.stats;
    if (s && typeof s === "object") {
      const stats = {};
      for (const k of ["tokens", "rate", "first", "thought", "used", "reused"]) stats[k] = number(s[k]);
      c.nodes[id].stats = stats;
    }
  }
  for (const n of Object.values(c.nodes)) { /* a parent that is not there, or a circle, would hide messages */
    const seen = new Set();
    for (let m = n; m; m = c.nodes[m.parent]) {
      if (seen.has(m.id)) throw new Error("messages that follow each other in a circle");
      seen.add(m.id);
      if (m.checked) break;
    }
    if (n.parent !== null && !c.nodes[n.parent]) throw new Error("a message whose predecessor is missing");
    n.checked = true;
  }
  for (const n of Object.values(c.nodes)) delete n.checked;
  c.leaf = c.nodes[raw.leaf] ? raw.leaf : null;
  if (!c.leaf) for (const n of Object.values(c.nodes)) if (n.parent === null) showBranch(c, n);
  return c;
}

/* Conversations of a file: this page's export, OpenAI's messages (a list, or {messages}), or one of these a line. */
function parseImport(text) {
  let values;
  try {
    values = [JSON.parse(text)];
  } catch {
    values = text.split("\n").filter((l) => l.trim()).map((l) => JSON.parse(l));
  }
  const found = [];
  for (const v of values) {
    if (v?.format === FORMAT && Array.isArray(v.conversations)) found.push(...v.conversations.map(fromExport));
    else if (Array.isArray(v)) found.push(fromMessages(v));
    else if (Array.isArray(v?.messages)) found.push(fromMessages(v.messages, v.title));
    else throw new Error("expected an export of this page, or OpenAI's messages");
  }
  return found;
}

/* ---- settings ---- */

const readSetting = (name, otherwise) => {
  try {
    return JSON.parse(localStorage.getItem("linnet." + name)) ?? otherwise;
  } catch {
    return otherwise;
  }
};
const writeSetting = (name, value) => {
  try {
    localStorage.setItem("linnet." + name, JSON.stringify(value));
  } catch { /* the browser keeps nothing */ }
};
