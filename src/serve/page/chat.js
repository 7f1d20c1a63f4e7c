/* The conversation that is open: sending, streaming, stopping, other answers, making room. */

let open = null; /* the conversation */
let live = null; /* the answer that is being made: { c, node, view, abort, frame, saved } */
let models = [];
const model = () => models.find((m) => m.id === byId("model").value) || models[0] || { id: "", max_model_len: 0 };

/* ---- showing ---- */

const isAtEnd = () => byId("scroll").scrollHeight - byId("scroll").scrollTop - byId("scroll").clientHeight < 90;
function scrollToEnd() {
  byId("scroll").scrollTop = byId("scroll").scrollHeight;
}
const viewOf = (node) => [...byId("messages").children].find((v) => v.node === node);

function showEmpty() {
  const starts = ["Tell me a short story.", "Explain how a linnet sings.", "Write a haiku about the sea."];
  const name = model().id;
  byId("messages").replaceChildren(el("div", { class: "empty" }, bird(), el("h2", null, name ? `Talk to ${name}` : "Hello"),
    el("p", { class: "muted" }, "Everything stays on this server and in this browser."),
    el("div", { class: "starts" }, starts.map((s) => el("button", { type: "button", onclick: () => send(s) }, s)))));
}

function showConversation() {
  byId("title").textContent = open.title;
  document.title = open.title === "New conversation" ? "linnet" : `${open.title} · linnet`;
  byId("system").value = open.system;
  byId("notice").replaceChildren();
  const path = pathOf(open);
  if (path.length === 0) showEmpty();
  else byId("messages").replaceChildren(...path.map((n) => renderMessage(open, n, actions)));
  if (live && live.c === open) {
    const view = viewOf(live.node);
    if (view) (live.view = view), view.update(true);
  }
  byId("export").disabled = path.length === 0;
  showBusy();
  showContext();
  showList();
}

function openConversation(c) {
  open = c;
  showConversation();
  scrollToEnd();
  requestAnimationFrame(scrollToEnd);
  location.replace("#" + c.id);
}

/* After a change of what is sent, what was counted does not hold any more. */
function forgetCounts(c) {
  for (const n of Object.values(c.nodes)) if (n.stats) delete n.stats.used;
}

function showBusy() {
  const busy = live !== null && live.c === open;
  byId("stop").hidden = !busy;
  byId("send").hidden = busy;
  byId("send").disabled = live !== null || (byId("prompt").value.trim() === "" && attached.length === 0);
}

/* How full the context is after the last message. What no answer has told, the server counts; a conversation that
   is too long is said to be so when it is opened. */
async function showContext() {
  const size = model().max_model_len, c = open, last = c.nodes[c.leaf];
  if (live && live.c === open) return;
  if (last && size && !last.stats?.used) {
    const used = await countTokens(model().id, messagesOf(c, pathOf(c))).catch(() => 0);
    if (c !== open || c.leaf !== last.id || live) return;
    if (used) last.stats = { ...last.stats, used };
  }
  const used = last?.stats?.used || 0;
  if (used > size && !byId("notice").firstChild) offerRoom();
  byId("context").hidden = !size || !used;
  if (!size || !used) return;
  const share = Math.min(1, used / size);
  byId("context-text").textContent = `${count(used)} / ${count(size)}`;
  byId("context").title = `${count(used)} of the ${count(size)} tokens that the model reads are used`;
  byId("context-fill").style.width = `${(100 * share).toFixed(1)}%`;
  byId("context").className = share > 0.85 ? "full" : "";
}

/* ---- answers ---- */

function requestBody(messages) {
  const body = { model: model().id || undefined, messages, ...samplingOf() };
  const thinking = byId("thinking").value;
  if (thinking) body.chat_template_kwargs = { enable_thinking: thinking === "on" };
  const tools = toolsOf();
  if (tools.length) body.tools = tools;
  const format = responseFormat();
  if (format) body.response_format = format;
  return body;
}

function paint() {
  live.frame = 0;
  const stick = isAtEnd();
  if (live.c === open && live.view.isConnected) live.view.update(true);
  if (live.c === open && stick) scrollToEnd();
  const now = Date.now();
  if (now - live.saved > 1500) {
    live.saved = now;
    saveConversation(live.c);
  }
}

function onEvent(node, e, times) {
  const now = performance.now();
  node.wait = undefined;
  if (e.call) addCallPiece(node, e.call);
  if (e.text || e.reasoning || e.call) {
    if (!times.first) times.first = now;
    times.pieces++;
    if (e.reasoning) node.reasoning = (node.reasoning || "") + e.reasoning;
    if (e.text && node.reasoning && !node.content) node.stats.thought = (now - times.first) / 1000;
    if (e.text) node.content += e.text;
    node.stats.tokens = times.before + times.pieces;
    node.stats.first = (times.first - times.began) / 1000;
    if (now - times.first > 300) node.stats.rate = (times.pieces - 1) / ((now - times.first) / 1000);
  }
  if (e.finish) node.finish = e.finish;
  if (e.usage) {
    const { usage, timings } = e, size = model().max_model_len;
    node.stats.tokens = times.before + usage.completion_tokens;
    node.stats.used = usage.total_tokens;
    node.stats.reused = usage.prompt_tokens_details?.cached_tokens;
    if (timings.predicted_per_second && usage.completion_tokens > 1) node.stats.rate = timings.predicted_per_second;
    if (node.finish === "length" && size && usage.total_tokens >= size) node.finish = "context";
  }
  if (!live.frame) live.frame = requestAnimationFrame(paint);
}

/* Makes an answer below the node `parent`. */
async function answer(c, parent) {
  c.leaf = parent.id;
  const body = requestBody(messagesOf(c, pathOf(c)));
  const node = addNode(c, parent.id, "assistant", "");
  node.model = model().id;
  node.stats = {};
  await stream(c, node, 0, () => ["/v1/chat/completions", body]);
}

/* Continues an answer that was cut, in its place. Its tools and format hold from its beginning and are not asked for again. */
async function continueAnswer(c, node) {
  const before = requestBody(messagesOf(c, pathOf(c, node.parent)));
  c.leaf = node.id;
  await stream(c, node, node.stats?.tokens || 0, async (signal) => {
    const { messages, chat_template_kwargs, tools, model: name } = before;
    if (node.content.trim()) {
      const last = { role: "assistant", content: node.content, reasoning_content: node.reasoning || undefined };
      const body = { ...before, messages: [...messages, last], continue_final_message: true, response_format: undefined };
      return ["/v1/chat/completions", tools ? { ...body, tool_choice: "none" } : body];
    }
    const prompt = await idsAfterReasoning({ model: name, messages, chat_template_kwargs, tools }, node.reasoning, signal);
    const limit = samplingOf().max_tokens, left = Math.max(1, model().max_model_len - prompt.length);
    return ["/v1/completions", { model: name, prompt, ...samplingOf(), max_tokens: limit ? Math.min(limit, left) : left }];
  });
}

/* Streams what the request of `make` gives into a node; before: tokens that it has. */
async function stream(c, node, before, make) {
  node.stats ??= {};
  node.error = undefined;
  node.finish = "lost"; /* until it is something else: what a page that is closed in between leaves */
  const abort = new AbortController(), times = { began: performance.now(), first: 0, pieces: 0, before };
  live = { c, node, view: null, abort, frame: 0, saved: Date.now() };
  if (open === c) showConversation();
  scrollToEnd();
  announce("The model answers");
  await saveConversation(c);
  try {
    const [path, body] = await make(abort.signal);
    await streamAnswer(path, body, abort.signal, (e) => onEvent(node, e, times),
      (why) => ((node.wait = why), live.frame || (live.frame = requestAnimationFrame(paint))));
    announce(`The answer is complete: ${node.content.slice(0, 500)}`);
  } catch (e) {
    failed(c, node, e);
  }
  await finishAnswer(c, node);
}

function failed(c, node, e) {
  if (e.name === "AbortError") {
    node.finish = "stopped";
    announce("Stopped");
    return;
  }
  node.finish = undefined;
  node.error = e instanceof TypeError ? "The server cannot be reached." : sentence(e.message);
  node.code = e.code;
  announce(node.error);
}
const sentence = (text) => text === "" ? "The answer ended with an error." : text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

async function finishAnswer(c, node) {
  const { code } = node;
  cancelAnimationFrame(live.frame);
  live = null;
  node.wait = undefined;
  delete node.code;
  if (node.finish === "lost") node.finish = undefined;
  const nothing = !node.content && !node.reasoning && !node.calls;
  if (nothing && (code === "context_length_exceeded" || code === "invalid_api_key" || node.finish === "stopped")) {
    delete c.nodes[node.id];
    c.leaf = node.parent;
  }
  c.updated = Date.now();
  if (c === open) {
    const stick = isAtEnd();
    showConversation();
    if (stick) scrollToEnd();
  }
  await saveConversation(c);
  if (code === "context_length_exceeded" && c === open) await offerRoom();
  if (code === "invalid_api_key") askForKey(true).then(() => c === open && answer(c, c.nodes[c.leaf]));
}

function send(text) {
  if (live || !(text.trim() || attached.length)) return;
  if (!showProblems()) {
    byId("settings").showModal();
    byId(settingsProblems().tools ? "tools" : "schema").focus();
    return;
  }
  const first = pathOf(open).length === 0;
  const node = addNode(open, open.leaf, "user", text.trim());
  if (attached.length) node.files = attached;
  if (first && !open.named) open.title = titleFrom(text.trim() || attached[0].name);
  attached = [];
  showAttached();
  byId("prompt").value = "";
  fitPrompt();
  answer(open, node);
}

const actions = {
  show(node) {
    if (live) return;
    showBranch(open, node);
    showConversation();
    saveConversation(open);
  },
  edit(node) {
    const view = viewOf(node);
    view.edit((text) => {
      if (text !== null && text.trim() && !live && node.role === "user") {
        const edited = addNode(open, node.parent, "user", text.trim());
        edited.files = node.files;
        answer(open, edited);
        return;
      }
      if (text !== null && node.role === "assistant") {
        node.content = text;
        forgetCounts(open);
        saveConversation(open);
      }
      showConversation();
      byId("prompt").focus();
    });
  },
  again(node) {
    if (live) return;
    const parent = open.nodes[node.parent];
    if (node.error && !node.content) delete open.nodes[node.id];
    answer(open, parent);
  },
  goOn(node) {
    if (!live) continueAnswer(open, node);
  },
  /* A conversation of its own with everything up to this message. */
  branch(node) {
    if (live) return;
    const c = newConversation(open.system), path = structuredClone(pathOf(open, node.id));
    for (const n of path) c.nodes[n.id] = n;
    Object.assign(c, { leaf: node.id, named: true, title: `${open.title} (branch)` });
    saveConversation(c);
    openConversation(c);
    byId("prompt").focus();
    announce("A new conversation goes on from here");
  },
  /* Results of an answer's calls, one each, and the answer after them. */
  giveResults(node, results) {
    if (live) return;
    let at = node;
    results.forEach((text, k) => {
      at = addNode(open, at.id, "tool", text);
      Object.assign(at, { call: node.calls[k].id, name: node.calls[k].name });
    });
    answer(open, at);
  },
  remove(node) {
    if (live) return;
    const c = open, was = structuredClone(c);
    removeBranch(c, node);
    showConversation();
    saveConversation(c);
    toast("Deleted", "Undo", () => (Object.assign(c, was), saveConversation(c), open === c && showConversation()));
  },
  toggleOut(node) {
    node.out = node.out ? undefined : true;
    forgetCounts(open);
    showConversation();
    saveConversation(open);
    announce(node.out ? "Left out of the context" : "Put back into the context");
  },
  makeRoom() {
    offerRoom();
  },
};

/* ---- making room ---- */

/* How many of the oldest messages must go so that the rest has at most `most` tokens; null: the last one alone
   is too long. The count falls with each message, so that a binary search asks a few times. */
async function oldestToDrop(path, most) {
  const starts = path.map((n, k) => k).filter((k) => path[k].role === "user");
  let low = 0, high = starts.length - 1;
  const tokens = (k) => countTokens(model().id, messagesOf(open, path.slice(starts[k])));
  const total = await tokens(0);
  let left = await tokens(high);
  if (left > most) return { total, none: true, left };
  while (low < high) {
    const k = (low + high) >> 1, n = await tokens(k);
    if (n <= most) (high = k), (left = n);
    else low = k + 1;
  }
  return { total, n: starts[high], left };
}

/* Says that the conversation is longer than the context, and offers what may be dropped. */
async function offerRoom() {
  const c = open, size = model().max_model_len;
  const path = pathOf(c).filter((n) => !n.out && !n.error), last = path[path.length - 1];
  const limit = samplingOf().max_tokens, keep = Math.min(limit > 0 ? limit : size >> 2, size >> 1);
  const box = el("div", { class: "room" }, el("p", null, el("strong", null, "The conversation is longer than the model's context.")));
  byId("notice").replaceChildren(box);
  let found;
  try {
    found = await oldestToDrop(path, size - keep);
  } catch (e) {
    box.append(el("p", null, sentence(e.message)));
    return;
  }
  if (c !== open || live) return;
  const retry = last.role === "user";
  const go = (drop) => () => {
    for (const n of drop) n.out = true;
    forgetCounts(c);
    byId("notice").replaceChildren();
    saveConversation(c);
    if (retry) answer(c, last);
    else showConversation();
  };
  const button = (text, fn, primary) => el("button", { type: "button", class: primary ? "primary" : "plain", onclick: fn }, text);
  const choices = el("div", { class: "buttons" });
  if (found.none) {
    box.append(el("p", null, `The last message alone has ${plural(found.left, "token")}; the model reads ${count(size)}. Shorten it.`));
    if (retry) choices.append(button("Edit it", () => actions.edit(last), true));
  } else {
    box.append(el("p", null, `It has ${plural(found.total, "token")}; the model reads ${count(size)}, its answer included. What is left out stays on this page.`));
    choices.append(button(`Leave out the oldest ${plural(found.n, "message")} (${count(found.left)} tokens stay)`, go(path.slice(0, found.n)), true));
    if (path.length > 1) choices.append(button("Leave out all but the last message", go(path.slice(0, retry ? -1 : -2)), false));
  }
  choices.append(button("Not now", () => (byId("notice").replaceChildren(), byId("prompt").focus()), false));
  box.append(choices);
  choices.firstChild.focus();
}
