// Helpers that build elements. Texts of crawled sites (URLs, titles, rules) become text nodes only: no markup is ever
// parsed.

import { ago } from "./format.js";

/** Creates an element: `h("a.button", { href, onclick }, "text", child)`. Null children and attributes are left out. */
export function h(spec, ...rest) {
  const [tag, ...classes] = spec.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  let children = rest;
  if (isAttributes(rest[0])) {
    set(element, rest[0]);
    children = rest.slice(1);
  }
  add(element, children);
  return element;
}

function isAttributes(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Node);
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else if (name === "data") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/** Replaces the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

/** Sets a text if it differs, so that a screen reader does not announce it again. */
export function write(element, text) {
  const next = String(text);
  if (element.textContent !== next) element.textContent = next;
}

/** Shows a time as "3 min ago", with the whole time as its title. app.js keeps it up to date. */
export function since(text) {
  return text ? h("time", { datetime: text, title: text, "data-ago": "" }, ago(text)) : "never";
}

/** Updates all times of the page. */
export function tick() {
  for (const time of document.querySelectorAll("time[data-ago]")) write(time, ago(time.dateTime));
}

/** Creates a labelled field: `field("Host", input)`. */
export function field(label, input, hint) {
  return h("label.field", h("span", label), input, hint && h("small.quiet", hint));
}

/** Creates a select with options `[value, text]`. */
export function select(attributes, options) {
  const chosen = attributes.value ?? "";
  const element = h("select", { ...attributes, value: undefined });
  for (const [value, text] of options) element.append(h("option", { value }, text));
  element.value = chosen;
  return element;
}

/** Creates the suggestions of an input whose `list` attribute is `id`. */
export function suggestions(id, values) {
  return h(
    "datalist",
    { id },
    values.map((value) => h("option", { value })),
  );
}

/** Creates the message of an empty view: a title, and what the user can do. */
export function empty(title, ...words) {
  return h("div.empty", h("p.empty-title", title), words.length ? h("p", words) : null);
}

/** Creates a table in a box that scrolls sideways, by keyboard too, since it takes the focus. */
export function table(caption, columns, body) {
  const heads = columns.map((column) =>
    h("th", { scope: "col", class: column.kind, "aria-sort": column.sorted }, column.head ?? column.name),
  );
  return h(
    "div.scroll",
    { role: "region", "aria-label": caption, tabindex: "0" },
    h("table", h("caption.hidden", caption), h("thead", h("tr", heads)), body),
  );
}

let dialogClosed = null;

/** Opens the dialog with this title and content; `closed` is called when it closes. */
export function openDialog(title, content, closed) {
  const dialog = document.getElementById("dialog");
  fill(
    dialog,
    h(
      "div.dialog-head",
      h("h2", { id: "dialog-title" }, title),
      h("button.plain", { type: "button", "aria-label": "Close", onclick: closeDialog }, "Close"),
    ),
    content,
  );
  dialogClosed = closed ?? null;
  if (!dialog.open) dialog.showModal();
}

/** Closes the dialog, which returns the focus. */
export function closeDialog() {
  const dialog = document.getElementById("dialog");
  if (dialog.open) dialog.close();
  dialogClosed?.();
  dialogClosed = null;
}
