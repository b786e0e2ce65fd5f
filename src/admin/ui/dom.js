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

/** Returns a text as parts, those between backticks as code. */
export function withCode(text) {
  return text.split(/`([^`]+)`/).map((part, at) => (at % 2 ? h("code", part) : part));
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

/**
 * Labels the cells of rows with the names of their columns: in a narrow window each row is a card. The roles keep it a
 * table for assistive technology, whatever its layout.
 */
export function label(rows, names) {
  for (const row of rows) {
    row.setAttribute("role", "row");
    [...row.cells].forEach((cell, at) => {
      cell.setAttribute("role", cell.tagName === "TH" ? "rowheader" : "cell");
      if (names[at]) cell.dataset.label = names[at];
    });
  }
}

/** Creates a table with these heads, whose rows are cards in a narrow window. The caller labels rows that it adds later. */
export function cards(caption, heads, body) {
  for (const head of heads) head.setAttribute("role", "columnheader");
  body.setAttribute("role", "rowgroup");
  return h(
    "table.cards",
    { role: "table" },
    h("caption.hidden", caption),
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads)),
    body,
  );
}

/** Creates a table in a box that scrolls sideways, by keyboard too, since it takes the focus. */
export function table(caption, columns, body) {
  const heads = columns.map((column) =>
    h("th", { scope: "col", class: column.kind, "aria-sort": column.sorted }, column.head ?? column.name),
  );
  label(
    body.rows,
    columns.map((column) => column.name),
  );
  return h("div.scroll", { role: "region", "aria-label": caption, tabindex: "0" }, cards(caption, heads, body));
}

/** Creates a button that copies the text of `get()`; the words after it are announced. */
export function copyButton(words, get) {
  const said = h("span.quiet", { role: "status" });
  const copy = async () => {
    const text = get();
    try {
      await navigator.clipboard.writeText(text);
      fill(said, "copied");
    } catch {
      // Without https, pages may not use the clipboard. The user can copy the selection.
      const box = h("textarea", { readonly: true, rows: 2, "aria-label": words });
      box.value = text;
      fill(said, box);
      box.focus();
      box.select();
    }
  };
  return h("span.copy", h("button.plain", { type: "button", onclick: copy }, words), said);
}

/** Asks for confirmation and resolves to the answer. `content` says what will change. */
export function confirm(title, content, action, { danger = false } = {}) {
  return new Promise((resolve) => {
    let answer = false;
    const yes = h(
      danger ? "button.danger" : "button.main",
      { type: "button", onclick: () => ((answer = true), closeDialog()) },
      action,
    );
    openDialog(
      title,
      h("div", content, h("div.actions", yes, h("button", { type: "button", onclick: closeDialog }, "Cancel"))),
      () => resolve(answer),
    );
    yes.focus();
  });
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
