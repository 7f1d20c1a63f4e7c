"use strict";
/* Building the page: elements, icons, short messages. No text ever becomes HTML: it goes into text nodes, and
   the Content-Security-Policy forbids innerHTML (trusted-types 'none'). */

const byId = (id) => document.getElementById(id);

/* An element with properties and children. `on...` properties are listeners, `aria-...`, `data-...` and `role`
   are attributes; children are nodes, texts, or null. They come first: with dir="auto" each one that is added
   makes the browser read all of the text again. */
function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.includes("-") || name === "role" || name === "for") node.setAttribute(name, value);
    else if (name === "class") node.className = value;
    else node[name] = value;
  }
  return node;
}

/* Paths of the icons, on a grid of 24 by 24, drawn as lines. */
const ICONS = {
  plus: "M12 5v14M5 12h14",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6L6 18",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M8 8h8v8H8z",
  copy: "M9 9h10v11H9zM5 15V4h10",
  check: "M5 12.5l4.5 4.5L19 7.5",
  edit: "M4 20h4L19 9l-4-4L4 16zM13.5 6.5l4 4",
  again: "M20 11a8 8 0 1 0-2.3 5.7M20 5v6h-6",
  left: "M14.5 6l-6 6 6 6",
  right: "M9.5 6l6 6-6 6",
  down: "M12 5v14M6 13l6 6 6-6",
  tune: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5v5M9 14.5v5",
  trash: "M5 7h14M10 7V4.5h4V7M7 7l1 13h8l1-13",
  save: "M12 4v11M7 10.5l5 5 5-5M5 20h14",
  load: "M12 16V5M7 9.5l5-5 5 5M5 20h14",
  sun: "M12 8.5a3.5 3.5 0 1 1 0 7 3.5 3.5 0 0 1 0-7M12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6l1.4 1.4M17 17l1.4 1.4M18.4 5.6L17 7M7 17l-1.4 1.4",
  moon: "M19.5 14.2A8 8 0 1 1 9.8 4.5a6.5 6.5 0 0 0 9.7 9.7z",
  half: "M12 4a8 8 0 1 1 0 16zM12 4a8 8 0 0 0 0 16",
  clip: "M19 11.5l-7.5 7.5a4.5 4.5 0 0 1-6.4-6.4l8-8a3 3 0 0 1 4.3 4.3l-8 8a1.5 1.5 0 0 1-2.2-2.1l7-7",
  page: "M7 4h7l4 4v12H7zM13.5 4v4.5H18",
  branch: "M7 4v16M7 9c0 3 3 4 6 4s4 1.500 4 4v3M14.500 17.500L17 20l2.500-2.500M4.500 6.500L7 4l2.500 2.500",
  tool: "M14.500 6a4 4 0 0 0-5 5L4 16.500 7.500 20l5.500-5.500a4 4 0 0 0 5-5l-2.500 2.500-3-3z",
  hide: "M4 12s3-6 8-6 8 6 8 6-3 6-8 6-8-6-8-6M5 19L19 5",
  show: "M4 12s3-6 8-6 8 6 8 6-3 6-8 6-8-6-8-6M12 9.5a2.5 2.5 0 1 1 0 5 2.5 2.5 0 0 1 0-5",
};

function svg(paths, box, attributes) {
  const space = "http://www.w3.org/2000/svg";
  const root = document.createElementNS(space, "svg");
  for (const [name, value] of Object.entries({ viewBox: `0 0 ${box} ${box}`, "aria-hidden": "true", ...attributes }))
    root.setAttribute(name, value);
  for (const d of paths) {
    const path = document.createElementNS(space, "path");
    path.setAttribute("d", d);
    root.append(path);
  }
  return root;
}
const icon = (name) => svg([ICONS[name]], 24, { class: "icon" });
/* The bird of the program's name; its eye is a hole in the shape. */
const BIRD =
  "M3 9.5 8.6 8C9.6 5.5 12 4 14.7 4c4.2 0 7.3 3.2 7.3 7.5 0 1.1.5 2 1.4 2.7L29.5 19l-7.3.6C20.7 24.2 16.8 27 12.3 27 " +
  "8.2 27 5.6 24.5 5.6 21c0-2.2 1-3.7 1.8-5.6.5-1.2.8-2.5.6-3.9zM13.5 7.7a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3z";
const bird = () => svg([BIRD], 32, { class: "bird-icon", "fill-rule": "evenodd" });

/* A button with an icon whose label is read aloud and shown as a hint. */
function iconButton(name, label, onclick) {
  return el("button", { type: "button", class: "icon-button small", title: label, "aria-label": label, onclick }, icon(name));
}

/* Says a sentence to screen readers. */
function announce(text) {
  byId("status").textContent = text;
}

/* Shows a short message, with an action that may undo what was done. */
function toast(text, action, undo) {
  const box = el("div", { class: "toast" }, text);
  const drop = () => box.remove();
  const timer = setTimeout(drop, undo ? 8000 : 4000);
  if (undo)
    box.append(el("button", { type: "button", class: "plain", onclick: () => { clearTimeout(timer); drop(); undo(); } }, action));
  byId("toasts").append(box);
}

const count = (n) => n.toLocaleString("en");
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;
const seconds = (s) => (s < 10 ? s.toFixed(1) : Math.round(s)) + " s";
const uid = () => Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => b.toString(36).padStart(2, "0")).join("");

async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { /* without HTTPS or localhost there is no clipboard interface */
    const area = el("textarea", { value: text, class: "sr" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
  const was = button.firstChild;
  button.replaceChild(icon("check"), was);
  announce("Copied");
  setTimeout(() => button.replaceChild(was, button.firstChild), 1200);
}

function download(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = el("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
