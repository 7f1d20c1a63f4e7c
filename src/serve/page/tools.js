/* Tools that the model may call: their definitions in the settings, the view of calls, and results, which the user writes in the
   place of a program. */

function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/* The definitions of a text: a list of functions, or of tools as OpenAI has them. An error says what is wrong. */
function parseTools(text) {
  if (!text.trim()) return [];
  let list = JSON.parse(text);
  if (!Array.isArray(list)) list = [list];
  return list.map((t, i) => {
    const f = t?.function ?? t;
    if (typeof f?.name !== "string" || !f.name) throw new Error(`tool ${i + 1} has no "name"`);
    const parameters = f.parameters ?? f.input_schema ?? { type: "object", properties: {} };
    if (typeof parameters !== "object" || Array.isArray(parameters)) throw new Error(`the "parameters" of ${f.name} are no JSON schema`);
    return { type: "function", function: { name: f.name, description: typeof f.description === "string" ? f.description : undefined, parameters } };
  });
}

const toolsOf = () => parseTools(byId("tools").value);

function responseFormat() {
  const kind = byId("answer-format").value;
  if (kind === "json_object") return { type: "json_object" };
  if (kind !== "json_schema") return undefined;
  const schema = JSON.parse(byId("schema").value);
  return { type: "json_schema", json_schema: { name: "answer", schema, strict: true } };
}

/* What is wrong with the tools or the schema, for each of the two; "" where nothing is. */
function settingsProblems() {
  const found = { tools: "", schema: "" };
  try {
    toolsOf();
  } catch (e) {
    found.tools = sentence(e.message);
  }
  try {
    responseFormat();
  } catch (e) {
    found.schema = byId("schema").value.trim() ? sentence(e.message) : "Write a JSON schema here.";
  }
  return found;
}

/* Shows what is wrong beside the fields, and what is on in the composer. */
function showProblems() {
  const found = settingsProblems();
  for (const [id, text] of Object.entries(found)) {
    byId(id).setAttribute("aria-invalid", text !== "");
    byId(id + "-problem").textContent = text;
  }
  byId("schema-field").hidden = byId("answer-format").value !== "json_schema";
  const n = found.tools ? 0 : toolsOf().length, kind = byId("answer-format").value;
  const parts = [n ? plural(n, "tool") : "", kind === "json_object" ? "JSON" : kind === "json_schema" ? "schema" : "", found.tools || found.schema ? "settings need attention" : ""].filter(Boolean);
  byId("active").hidden = parts.length === 0;
  byId("active").textContent = parts.join(" · ");
  return !found.tools && !found.schema;
}

/* Adds a piece of a stream to the calls of an answer. */
function addCallPiece(node, piece) {
  node.calls ??= [];
  const call = (node.calls[piece.index ?? 0] ??= { id: "", name: "", arguments: "" });
  if (piece.id) call.id = piece.id;
  if (piece.function?.name) call.name += piece.function.name;
  if (piece.function?.arguments) call.arguments += piece.function.arguments;
}

/* ---- the view of calls ---- */

function renderCall(call) {
  const text = prettyJson(call.arguments || "{}"), copy = iconButton("copy", `Copy the arguments of ${call.name}`, () => copyText(text, copy));
  return el("figure", { class: "code call", "aria-label": `Call of ${call.name}` }, el("figcaption", null, el("span", { class: "call-name" }, icon("tool"), call.name), copy),
    el("pre", { tabIndex: 0, dir: "ltr" }, el("code", null, colour(text, "json"))));
}

/* The form in which the user answers the calls. */
function renderResults(node, actions) {
  const areas = node.calls.map((call) => el("textarea", { rows: 2, "aria-label": `Result of ${call.name}`, placeholder: `Result of ${call.name}`, spellcheck: false }));
  return el("form", { class: "results", onsubmit: (e) => (e.preventDefault(), actions.giveResults(node, areas.map((a) => a.value))) }, areas,
    el("div", { class: "buttons" }, el("button", { class: "primary" }, plural(areas.length, "result").replace(/^\d+ /, "Give the "))));
}

/* The calls of an answer; the last message of a conversation asks for their results. */
function renderCalls(c, node, actions, live) {
  if (!node.calls?.length) return null;
  const whole = !live && !node.error && !ENDS[node.finish];
  return el("div", { class: "calls" }, node.calls.map(renderCall), whole && c.leaf === node.id ? renderResults(node, actions) : null);
}

/* The calls of a request's message, and those of an import. */
const wireCalls = (calls) => calls.map((k) => ({ id: k.id, type: "function", function: { name: k.name, arguments: k.arguments || "{}" } }));
function readCalls(list) {
  const calls = [];
  for (const k of Array.isArray(list) ? list : []) {
    const f = k?.function ?? k, text = typeof f?.arguments === "string" ? f.arguments : JSON.stringify(f?.arguments ?? {});
    if (typeof f?.name === "string") calls.push({ id: typeof k.id === "string" ? k.id : uid(), name: f.name, arguments: text });
  }
  return calls.length ? calls : undefined;
}
