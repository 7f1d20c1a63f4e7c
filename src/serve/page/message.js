/* How one message looks: its text, its reasoning, what was measured, and what can be done with it. */

const statsText = (s) =>
  [s.tokens !== undefined && plural(s.tokens, "token"), s.rate && `${s.rate < 10 ? s.rate.toFixed(1) : count(Math.round(s.rate))} tokens/s`,
    s.first && `first after ${seconds(s.first)}`].filter(Boolean).join(" · ");

/* The reasoning, folded: models think aloud at length. */
function renderReasoning(node, live) {
  const body = el("div", { class: "reasoning-text" });
  const label = el("summary");
  const box = el("details", { class: "reasoning" }, label, body);
  box.update = (isLive) => {
    const thinking = isLive && !node.content;
    label.textContent = thinking ? "Thinking…" : node.stats?.thought ? `Thought for ${seconds(node.stats.thought)}` : "Thoughts";
    box.classList.toggle("live", thinking);
    if (box.open) renderMarkdown(body, node.reasoning);
  };
  box.addEventListener("toggle", () => box.open && renderMarkdown(body, node.reasoning));
  box.update(live);
  return box;
}

/* Choosing among siblings: 2 / 3. */
function renderVersions(c, node, actions) {
  const all = siblingsOf(c, node);
  if (all.length < 2) return null;
  const at = all.indexOf(node), go = (k) => () => actions.show(all[k]);
  const left = iconButton("left", "Previous version", go(at - 1)), right = iconButton("right", "Next version", go(at + 1));
  left.disabled = at === 0;
  right.disabled = at === all.length - 1;
  return el("span", { class: "versions" }, left, el("span", { "aria-label": `version ${at + 1} of ${all.length}` }, `${at + 1}/${all.length}`), right);
}

function renderActions(c, node, actions) {
  const copy = iconButton("copy", "Copy", () => copyText(node.content, copy));
  const answer = node.role === "assistant";
  return el("div", { class: "actions" }, renderVersions(c, node, actions), copy,
    node.role === "tool" ? null : iconButton("edit", answer ? "Edit this answer" : "Edit", () => actions.edit(node)),
    answer ? iconButton("again", "Answer again", () => actions.again(node)) : null,
    iconButton("branch", "Branch into a new conversation", () => actions.branch(node)),
    iconButton(node.out ? "show" : "hide", node.out ? "Put back into the context" : "Leave out of the context", () => actions.toggleOut(node)),
    iconButton("trash", "Delete from here on", () => actions.remove(node)),
    node.stats && answer ? el("span", { class: "stats" }, statsText(node.stats)) : null);
}

const ENDS = {
  stopped: "You stopped this answer.",
  lost: "This answer was cut off when the page was closed.",
  length: "This answer was cut: it has as many tokens as the settings allow.",
  context: "This answer was cut: the context is full.",
};

function renderEnd(node, actions) {
  if (node.error)
    return el("p", { class: "end error" }, node.error, " ", el("button", { type: "button", class: "plain", onclick: () => actions.again(node) }, "Try again"));
  if (!ENDS[node.finish]) return null;
  const button = (text, fn) => el("button", { type: "button", class: "plain", onclick: fn }, text);
  const more = node.finish === "context" ? button("Make room…", () => actions.makeRoom()) : node.content && !node.calls ? button("Continue", () => actions.goOn(node)) : null;
  return el("p", { class: "end" }, ENDS[node.finish], " ", more);
}

/* The editor in a message's place. `done` gets the new text, or null. */
function renderEditor(node, done) {
  const area = el("textarea", { value: node.content, "aria-label": node.role === "user" ? "Edit your message" : "Edit the answer", dir: "auto" });
  const fit = () => ((area.style.height = "auto"), (area.style.height = area.scrollHeight + 2 + "px"));
  area.addEventListener("input", fit);
  area.addEventListener("keydown", (e) => {
    if (e.key === "Escape") e.stopPropagation(), done(null);
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing && node.role === "user") e.preventDefault(), done(area.value);
  });
  setTimeout(() => (fit(), area.focus(), area.setSelectionRange(area.value.length, area.value.length)));
  return el("div", { class: "editor" }, area, el("div", { class: "buttons" },
    el("button", { type: "button", class: "plain", onclick: () => done(null) }, "Cancel"),
    el("button", { type: "button", class: "primary", onclick: () => done(area.value) }, node.role === "user" ? "Send" : "Save")));
}

/* A message. Its `update(live)` shows what the node has now; live: more is to come. */
function renderMessage(c, node, actions) {
  const answer = node.role === "assistant", label = answer ? "Answer" : node.role === "tool" ? `Result of ${node.name}` : "You";
  const text = el("div", { class: "text", dir: "auto" }), foot = el("div", { class: "foot" });
  const root = el("article", { class: `message ${node.role}${node.out ? " out" : ""}`, "aria-label": label, tabIndex: -1 });
  let reasoning = null, calls = null;
  root.node = node;
  root.update = (live) => {
    if (node.reasoning && !reasoning) root.insertBefore((reasoning = renderReasoning(node, live)), text);
    reasoning?.update(live);
    if (answer) renderMarkdown(text, node.content);
    else text.textContent = node.content;
    text.hidden = node.content === "" && (node.calls || node.files) !== undefined;
    if (node.calls) {
      const now = renderCalls(c, node, actions, live);
      if (calls) calls.replaceWith(now);
      else text.after(now);
      calls = now;
    }
    root.classList.toggle("live", live);
    root.classList.toggle("waiting", live && !node.content && !node.reasoning && !node.calls);
    root.setAttribute("aria-busy", live);
    if (live) foot.replaceChildren(el("span", { class: "stats" }, node.wait || (node.stats ? statsText(node.stats) : "")));
    else foot.replaceChildren(...[renderEnd(node, actions), renderActions(c, node, actions)].filter(Boolean));
  };
  root.edit = (done) => root.replaceChildren(renderEditor(node, done));
  root.append(...[node.out ? el("p", { class: "tag" }, "left out of the context") : null,
    node.role === "tool" ? el("p", { class: "tag" }, label) : null, renderFiles(node), text, foot].filter(Boolean));
  root.update(false);
  return root;
}
