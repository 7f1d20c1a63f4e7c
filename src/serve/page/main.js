/* The start of the page: icons, listeners, the models, the conversation of the address. */

function fitPrompt() {
  const box = byId("prompt");
  box.style.height = "auto";
  box.style.height = Math.min(box.scrollHeight, innerHeight * 0.4) + "px";
  if (open) showBusy();
}

function openButtons() {
  const icons = { "close-sidebar": "close", "open-sidebar": "menu", export: "save", "open-settings": "tune", "close-settings": "close", send: "send", stop: "stop", jump: "down", attach: "clip" };
  for (const [id, name] of Object.entries(icons)) {
    byId(id).append(icon(name));
    byId(id).title = byId(id).getAttribute("aria-label");
  }
  byId("new-chat").append(icon("plus"), "New conversation");
  byId("import").append(icon("load"), "Import");
  byId("export-all").append(icon("save"), "Export all");
  document.querySelector(".bird").append(bird());
  const clicks = {
    "new-chat": () => (startNew(), closeSidebar()), "open-sidebar": toggleSidebar, "close-sidebar": closeSidebar, shade: closeSidebar,
    "export-json": exportOpen, "export-markdown": exportMarkdown, attach: () => byId("attach-file").click(), "export-all": exportAll, import: () => byId("import-file").click(), jump: scrollToEnd,
    "open-settings": () => byId("settings").showModal(), stop: () => live?.abort.abort(),
    "change-key": () => (byId("settings").close(), askForKey(false).then(loadModels)),
  };
  for (const [id, fn] of Object.entries(clicks)) byId(id).addEventListener("click", fn);
  byId("import-file").addEventListener("change", async (e) => {
    await importFiles(e.target.files);
    e.target.value = "";
  });
  byId("attach-file").addEventListener("change", async (e) => {
    await attachFiles(e.target.files);
    e.target.value = "";
    byId("prompt").focus();
  });
  for (const entry of byId("export-menu").querySelectorAll("button")) entry.addEventListener("click", () => byId("export-menu").hidePopover());
  byId("active").addEventListener("click", () => (byId("settings").showModal(), byId(byId("tools").value.trim() ? "tools" : "answer-format").focus()));
  byId("search").addEventListener("input", showList);
  byId("model").addEventListener("change", () => (writeSetting("model", byId("model").value), showContext()));
  byId("scroll").addEventListener("scroll", () => (byId("jump").hidden = isAtEnd()), { passive: true });
}

function openKeys() {
  byId("composer").addEventListener("submit", (e) => (e.preventDefault(), send(byId("prompt").value)));
  byId("prompt").addEventListener("input", fitPrompt);
  byId("prompt").addEventListener("paste", takePasted);
  byId("prompt").addEventListener("keydown", (e) => {
    const touch = matchMedia("(pointer: coarse)").matches;
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing && !touch) {
      e.preventDefault();
      send(byId("prompt").value);
    }
    if (e.key === "ArrowUp" && byId("prompt").value === "" && !live) {
      const last = pathOf(open).filter((n) => n.role === "user").pop();
      if (last) e.preventDefault(), actions.edit(last);
    }
  });
  document.addEventListener("keydown", (e) => {
    if (e.key === "Escape" && !document.querySelector("dialog[open]")) {
      if (live && live.c === open) live.abort.abort();
      else closeSidebar();
    }
    if (e.key.toLowerCase() === "o" && e.ctrlKey && e.shiftKey) e.preventDefault(), startNew();
  });
  document.addEventListener("dragover", (e) => e.preventDefault());
  document.addEventListener("drop", (e) => (e.preventDefault(), takeDropped([...e.dataTransfer.files])));
}

function showModels() {
  const select = byId("model"), chosen = readSetting("model", "");
  select.replaceChildren(...models.map((m) => el("option", { value: m.id }, m.parent ? `${m.id} (adapter of ${m.parent})` : m.id)));
  if (models.some((m) => m.id === chosen)) select.value = chosen;
  select.disabled = models.length < 2;
  showContext();
  if (!open.leaf) showConversation();
}

/* Asks for the models until the server has an answer: it may still load, or want a key. */
async function loadModels() {
  for (let wrong = false; ;) {
    try {
      models = (await askJson("/v1/models")).data;
      byId("notice").replaceChildren();
      showModels();
      return;
    } catch (e) {
      if (e.status === 401) {
        await askForKey(wrong);
        wrong = true;
        continue;
      }
      const why = e.code === "loading" ? "The model is being loaded…" : e instanceof TypeError ? "The server cannot be reached; trying again…" : sentence(e.message);
      byId("notice").replaceChildren(el("p", { class: "room" }, why));
      await pause(1500);
    }
  }
}

async function loadAbout() {
  try {
    const s = await askJson("/v1/status");
    byId("about").textContent = `linnet ${s.version}; ${plural(s.parallel, "answer")} at once, ${count(s.ctx)} tokens each.`;
  } catch { /* a line that is not needed */ }
}

async function main() {
  showTheme();
  openButtons();
  openFields();
  openPresets();
  openKeys();
  document.body.classList.toggle("sidebar-hidden", readSetting("sidebar-hidden", false));
  const kept = await openStore();
  if (!kept) toast("This browser keeps nothing here: conversations are gone when the page is closed. Export what you need.");
  const wanted = conversations.get(location.hash.slice(1));
  openConversation(wanted || newConversation(readSetting("system", "")));
  others?.addEventListener("message", async () => {
    if (live) return;
    await readStore();
    if (conversations.has(open.id) && !document.querySelector(".editor")) (open = conversations.get(open.id)), showConversation();
    else showList();
  });
  if (!isNarrow()) byId("prompt").focus();
  fitPrompt();
  await loadModels();
  await loadAbout();
}
main();
