/* The list of conversations, the settings, the key, the theme. */

/* ---- the list ---- */

function groupOf(time) {
  const day = new Date().setHours(0, 0, 0, 0);
  if (time >= day) return "Today";
  if (time >= day - 86400000) return "Yesterday";
  if (time >= day - 6 * 86400000) return "This week";
  return "Earlier";
}

const matches = (c, wanted) =>
  !wanted || c.title.toLowerCase().includes(wanted) || Object.values(c.nodes).some((n) => n.content.toLowerCase().includes(wanted));

function renderEntry(c) {
  const choose = el("button", { type: "button", class: "entry-title", title: c.title, "aria-current": c === open ? "page" : null, dir: "auto",
    onclick: () => (openConversation(c), closeSidebar()) }, c.title);
  const entry = el("div", { class: "entry" + (c === open ? " current" : "") }, choose,
    iconButton("edit", `Rename “${c.title}”`, () => rename(entry, c)),
    iconButton("trash", `Delete “${c.title}”`, () => removeConversation(c)));
  return entry;
}

function rename(entry, c) {
  const input = el("input", { value: c.title, "aria-label": "Title", maxLength: 200 });
  let over = false;
  const end = (keep) => {
    if (over) return;
    over = true;
    if (keep && input.value.trim()) Object.assign(c, { title: input.value.trim(), named: true }), saveConversation(c);
    if (c === open) byId("title").textContent = c.title;
    showList();
  };
  input.addEventListener("keydown", (e) => (e.key === "Enter" ? end(true) : e.key === "Escape" && end(false)));
  input.addEventListener("blur", () => end(true));
  entry.replaceChildren(input);
  input.select();
}

function showList() {
  const wanted = byId("search").value.trim().toLowerCase();
  const all = [...conversations.values()].filter((c) => matches(c, wanted)).sort((a, b) => b.updated - a.updated);
  const nodes = [];
  let group = "";
  for (const c of all) {
    if (groupOf(c.updated) !== group) nodes.push(el("h2", null, (group = groupOf(c.updated))));
    nodes.push(renderEntry(c));
  }
  if (nodes.length === 0) nodes.push(el("p", { class: "muted" }, wanted ? "Nothing found" : "Conversations appear here."));
  byId("list").replaceChildren(...nodes);
}

async function removeConversation(c) {
  if (live && live.c === c) live.abort.abort();
  await dropConversation(c.id);
  if (c === open) startNew();
  showList();
  toast("Conversation deleted", "Undo", () => (saveConversation(c), openConversation(c)));
}

function startNew() {
  openConversation(newConversation(readSetting("system", "")));
  byId("prompt").focus();
}

function openSidebar(show) {
  document.body.classList.toggle("sidebar-open", show);
  byId("shade").hidden = !show;
  byId("open-sidebar").setAttribute("aria-expanded", show);
  if (show && isNarrow()) byId("new-chat").focus();
}
const isNarrow = () => matchMedia("(max-width: 760px)").matches;
const closeSidebar = () => isNarrow() && openSidebar(false);
const toggleSidebar = () => {
  if (isNarrow()) return openSidebar(true);
  const hidden = document.body.classList.toggle("sidebar-hidden");
  writeSetting("sidebar-hidden", hidden);
};

/* ---- settings ---- */

/* Name in the request, label, kind, limits. */
const FIELDS = [
  ["temperature", "Temperature", 0, 2, 0.05], ["top_p", "Top p", 0, 1, 0.01], ["top_k", "Top k", 0, 1000, 1], ["min_p", "Min p", 0, 1, 0.01],
  ["max_tokens", "Tokens at most", 1, 1e6, 1], ["seed", "Seed", 0, 4294967295, 1],
  ["repetition_penalty", "Repetition penalty", 0.1, 2, 0.05], ["presence_penalty", "Presence penalty", -2, 2, 0.1],
  ["frequency_penalty", "Frequency penalty", -2, 2, 0.1],
];

/* The sampling fields of a request: those that the user has filled in and that are valid. */
function samplingOf() {
  const body = {};
  for (const [name] of FIELDS) {
    const input = byId("f-" + name);
    if (input.value !== "" && input.checkValidity()) body[name] = input.valueAsNumber;
  }
  const stop = byId("f-stop").value;
  if (stop) body.stop = stop.split("\n").filter(Boolean).map((s) => s.replaceAll("\\n", "\n"));
  return body;
}

function saveSettings() {
  const values = { thinking: byId("thinking").value, stop: byId("f-stop").value, format: byId("answer-format").value, schema: byId("schema").value, tools: byId("tools").value };
  for (const [name] of FIELDS) values[name] = byId("f-" + name).value;
  writeSetting("sampling", values);
  showProblems();
}

function openFields() {
  const values = readSetting("sampling", {});
  for (const [name, label, min, max, step] of FIELDS) {
    const input = el("input", { id: "f-" + name, type: "number", min, max, step: step < 1 ? "any" : step, value: values[name] ?? "", placeholder: "default", inputMode: "decimal" });
    byId("fields").append(el("label", { for: input.id }, label), input);
  }
  byId("fields").append(el("label", { for: "f-stop" }, "Stop texts, one a line"), el("textarea", { id: "f-stop", rows: 1, value: values.stop ?? "", spellcheck: false }));
  byId("thinking").value = values.thinking ?? "";
  byId("answer-format").value = values.format ?? "";
  byId("schema").value = values.schema ?? "";
  byId("tools").value = values.tools ?? "";
  showProblems();
  byId("settings").addEventListener("input", saveSettings);
  byId("system").addEventListener("input", () => {
    open.system = byId("system").value;
    writeSetting("system", open.system);
    if (open.leaf) saveConversation(open);
  });
  byId("reset-settings").addEventListener("click", () => {
    applyValues({});
    showPresets("");
  });
  byId("delete-all").addEventListener("click", async () => {
    const all = [...conversations.values()];
    for (const c of all) await dropConversation(c.id);
    byId("settings").close();
    startNew();
    toast(`${plural(all.length, "conversation")} deleted`, "Undo", async () => {
      for (const c of all) await saveConversation(c);
      showList();
    });
  });
}

/* ---- the key ---- */

let keyAsked = null; /* a promise while the dialog is open */
function askForKey(wrong) {
  if (keyAsked) return keyAsked;
  byId("key-why").textContent = wrong && apiKey ? "The server refused this key." : "This server requires an API key.";
  byId("key").value = "";
  byId("remember").checked = readSetting("key", "") !== "";
  byId("key-dialog").showModal();
  keyAsked = new Promise((resolve) => {
    byId("key-form").onsubmit = (e) => {
      e.preventDefault();
      apiKey = byId("key").value.trim();
      writeSetting("key", byId("remember").checked ? apiKey : "");
      sessionStorage.setItem("linnet.key", apiKey);
      byId("key-dialog").close();
      keyAsked = null;
      resolve();
    };
  });
  return keyAsked;
}

/* ---- the theme ---- */

const THEMES = [["auto", "half", "Colours of the system"], ["light", "sun", "Light"], ["dark", "moon", "Dark"]];
function showTheme() {
  const at = Math.max(0, THEMES.findIndex((t) => t[0] === readSetting("theme", "auto")));
  const [name, picture, label] = THEMES[at];
  document.documentElement.dataset.theme = name;
  byId("theme").replaceChildren(icon(picture), label);
  byId("theme").setAttribute("aria-label", `Theme: ${label}`);
  byId("theme").onclick = () => (writeSetting("theme", THEMES[(at + 1) % THEMES.length][0]), showTheme());
}
