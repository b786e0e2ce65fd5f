// Elements. Texts of crawled sites (URLs, titles, rules) become text nodes and nothing else: no markup is ever parsed.

import { ago } from "./format.js";

/** An element: `h("a.button", { href, onclick }, "text", child)`. Null children and attributes are left out. */
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

/** Puts these children in place of what is there. */
export function fill(element, ...children) {
  element.replaceChildren();
  add(element, children);
  return element;
}

/** Sets a text if it is another: a screen reader is not told what has not changed. */
export function write(element, text) {
  const now = String(text);
  if (element.textContent !== now) element.textContent = now;
}

/** A time as "3 min ago", which goes on while it stands there (app.js), with the whole time as its title. */
export function since(text) {
  return text ? h("time", { datetime: text, title: text, "data-ago": "" }, ago(text)) : "never";
}

/** Says anew how long ago all times of the page were. */
export function tick() {
  for (const time of document.querySelectorAll("time[data-ago]")) write(time, ago(time.dateTime));
}

/** A labelled field: `field("Host", input)`. */
export function field(label, input, hint) {
  return h("label.field", h("span", label), input, hint && h("small.quiet", hint));
}

/** A select with options `[value, words]`. */
export function select(attributes, options) {
  const chosen = attributes.value ?? "";
  const element = h("select", { ...attributes, value: undefined });
  for (const [value, words] of options) element.append(h("option", { value }, words));
  element.value = chosen;
  return element;
}

/** A list of suggestions for an input with this `list` attribute. */
export function suggestions(id, values) {
  return h(
    "datalist",
    { id },
    values.map((value) => h("option", { value })),
  );
}

/** What a view shows where it has nothing to show, and what to do about it. */
export function empty(title, ...words) {
  return h("div.empty", h("p.empty-title", title), words.length ? h("p", words) : null);
}

/** A table that can be scrolled sideways; its box can be reached by keyboard, as it has to be to be scrolled. */
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

/** Opens the dialog with this title and content; `closed` is called when it is gone. */
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

/** Closes the dialog; the focus returns to where it was. */
export function closeDialog() {
  const dialog = document.getElementById("dialog");
  if (dialog.open) dialog.close();
  dialogClosed?.();
  dialogClosed = null;
}
