/* Presets: the settings under a name, kept in the browser. */

const presets = () => readSetting("presets", []).filter((p) => typeof p?.name === "string" && p.values);
const PRESET_FIELDS = ["system", "thinking", "answer-format", "schema", "tools", "f-stop"];

function currentValues() {
  const values = {};
  for (const id of [...PRESET_FIELDS, ...FIELDS.map((f) => "f-" + f[0])]) values[id] = byId(id).value;
  return values;
}

function applyValues(values) {
  for (const [id, value] of Object.entries(currentValues())) byId(id).value = typeof values[id] === "string" ? values[id] : id in values ? value : "";
  byId("system").dispatchEvent(new Event("input", { bubbles: true })); /* saves all of them */
}

function showPresets(chosen) {
  byId("preset").replaceChildren(el("option", { value: "" }, "choose…"), ...presets().map((p) => el("option", { value: p.name }, p.name)));
  byId("preset").value = chosen;
  byId("delete-preset").disabled = !chosen;
}

function openPresets() {
  showPresets("");
  byId("preset").addEventListener("change", () => {
    const p = presets().find((q) => q.name === byId("preset").value);
    byId("delete-preset").disabled = !p;
    if (!p) return;
    applyValues(p.values);
    announce(`The preset ${p.name} is used`);
  });
  byId("save-preset").addEventListener("click", () => {
    byId("preset-name").parentElement.hidden = false;
    byId("preset-name").value = byId("preset").value;
    byId("preset-name").focus();
  });
  const keep = () => {
    const name = byId("preset-name").value.trim();
    if (!name) return;
    writeSetting("presets", [...presets().filter((p) => p.name !== name), { name, values: currentValues() }].sort((a, b) => a.name.localeCompare(b.name)));
    byId("preset-name").parentElement.hidden = true;
    showPresets(name);
    byId("preset").focus();
    announce(`Saved as ${name}`);
  };
  byId("keep-preset").addEventListener("click", keep);
  byId("preset-name").addEventListener("keydown", (e) => {
    if (e.key === "Enter") e.preventDefault(), keep();
    if (e.key === "Escape") e.preventDefault(), e.stopPropagation(), (byId("preset-name").parentElement.hidden = true), byId("save-preset").focus();
  });
  byId("delete-preset").addEventListener("click", () => {
    const name = byId("preset").value, was = presets();
    writeSetting("presets", was.filter((p) => p.name !== name));
    showPresets("");
    byId("preset").focus();
    toast(`The preset ${name} was deleted`, "Undo", () => (writeSetting("presets", was), showPresets(name)));
  });
}
