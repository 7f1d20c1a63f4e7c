/* What the page asks of the server: models, streams of answers, counts of tokens. */

class ServerError extends Error {
  constructor(status, body, response) {
    const e = body?.error || {};
    super(e.message || `the server answered with status ${status}`);
    this.status = status;
    this.code = e.code || "";
    this.wait = Number(response?.headers.get("retry-after")) || 1;
  }
}

let apiKey = sessionStorage.getItem("linnet.key") || readSetting("key", "");
const fieldsWithKey = () => (apiKey ? { Authorization: "Bearer " + apiKey } : {});

async function ask(path, body, signal) {
  const response = await fetch(path, body === undefined ? { headers: fieldsWithKey(), signal } : {
    method: "POST", signal, headers: { "Content-Type": "application/json", ...fieldsWithKey() }, body: JSON.stringify(body),
  });
  if (response.ok) return response;
  throw new ServerError(response.status, await response.json().catch(() => null), response);
}
const askJson = async (path, body, signal) => (await ask(path, body, signal)).json();

/* The data of each server-sent event of a response. */
async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    for (let end; (end = rest.indexOf("\n\n")) >= 0;) {
      const event = rest.slice(0, end);
      rest = rest.slice(end + 2);
      if (event.startsWith("data: ")) yield event.slice(6);
    }
  }
}

/* Waits, or throws when `signal` says that the user does not want to any more. */
const pause = (ms, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), reject(new DOMException("stopped", "AbortError"))), { once: true });
  });

/* Starts a stream; a server that is busy is asked again as it says, and `onWait` is told. */
async function startStream(path, body, signal, onWait) {
  for (let tries = 1; ; tries++) {
    try {
      return await ask(path, body, signal);
    } catch (e) {
      const busy = e.status === 429 || (e.status === 503 && e.code !== "shutting_down");
      if (!busy || tries === 30) throw e;
      onWait(e.code === "loading" ? "The model is being loaded…" : "The server is busy; your message waits…");
      await pause(Math.min(e.wait, 30) * 1000, signal);
    }
  }
}

/* Streams an answer of a path. `on` gets { text }, { reasoning }, { call }, at the end { finish }, { usage, timings }. */
async function streamAnswer(path, body, signal, on, onWait) {
  const response = await startStream(path, { ...body, stream: true, stream_options: { include_usage: true } }, signal, onWait);
  let done = false;
  for await (const data of eventsOf(response)) {
    if (data === "[DONE]") {
      done = true;
      break;
    }
    const event = JSON.parse(data), choice = event.choices?.[0];
    if (event.error) throw new ServerError(response.status, event);
    const delta = choice?.delta || {};
    if (delta.reasoning_content || delta.reasoning) on({ reasoning: delta.reasoning_content || delta.reasoning });
    if (delta.content || choice?.text) on({ text: delta.content || choice.text });
    for (const call of delta.tool_calls || []) on({ call });
    if (choice?.finish_reason) on({ finish: choice.finish_reason });
    if (event.usage) on({ usage: event.usage, timings: event.timings || {} });
  }
  if (!done) throw new Error("the connection ended before the answer did");
}

/* A message in the form of the path that counts tokens, which has calls and results as parts of contents. */
function forCounting(m) {
  if (m.role === "tool") return { role: "user", content: [{ type: "tool_result", tool_use_id: m.tool_call_id, content: m.content }] };
  if (!m.tool_calls) return { role: m.role, content: m.content };
  const uses = m.tool_calls.map((k) => ({ type: "tool_use", id: k.id, name: k.function.name, input: objectOf(k.function.arguments) }));
  return { role: m.role, content: [...(m.content ? [{ type: "text", text: m.content }] : []), ...uses] };
}
function objectOf(text) {
  try {
    const v = JSON.parse(text);
    return v && typeof v === "object" && !Array.isArray(v) ? v : {};
  } catch {
    return {};
  }
}

/* Tokens of a conversation, counted by the model's own template and tokenizer. */
async function countTokens(model, messages) {
  const system = messages[0]?.role === "system" ? messages[0].content : undefined;
  const rest = (system === undefined ? messages : messages.slice(1)).map(forCounting);
  return (await askJson("/v1/messages/count_tokens", { model, system, messages: rest })).input_tokens;
}

/* The token ids that continue an answer that was cut in its reasoning: those of the conversation before it as the model reads it, and of its
   reasoning, which is closed. If answers have headers one of them is begun. */
async function idsAfterReasoning(body, reasoning, signal) {
  let { prompt } = await askJson("/apply-template", body, signal);
  if (/<think>\s*$/.test(prompt)) prompt += `${reasoning || ""}\n</think>\n\n`;
  else if (/<\|start\|>assistant$/.test(prompt)) prompt += "<|channel|>final<|message|>";
  return (await askJson("/tokenize", { content: prompt, add_special: false }, signal)).tokens;
}
