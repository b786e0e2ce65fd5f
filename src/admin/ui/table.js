// A table that is updated often. Rows are reused and only changed texts are written, so that focus, selection and
// scroll position stay.

import { h } from "./dom.js";

export class KeptTable {
  /**
   * `columns` are `{ name, kind, key, sorted, title }`: one with a key can be sorted, `ascending` or `descending`.
   * `key` identifies an item, `make(item)` returns `{ element, update(item) }`, and a click on a column's head calls
   * `sort(key)`.
   */
  constructor(caption, columns, { key, make, sort }) {
    Object.assign(this, { columns, key, make, sort });
    this.kept = new Map();
    this.body = h("tbody");
    this.heads = columns.map((column) => h("th", { scope: "col", class: column.kind }, this.head(column)));
    this.element = h(
      "div.scroll",
      { role: "region", "aria-label": caption, tabindex: "0" },
      h("table", h("caption.hidden", caption), h("thead", h("tr", this.heads)), this.body),
    );
  }

  head(column) {
    if (!column.name) return h("span.hidden", column.title);
    if (!column.key) return column.name;
    return h("button", { type: "button", title: column.title, onclick: () => this.sort(column.key) }, column.name);
  }

  /** Marks the column by which the items are sorted. */
  sorted(key) {
    this.columns.forEach((column, at) => {
      if (column.key === key && column.sorted) this.heads[at].setAttribute("aria-sort", column.sorted);
      else this.heads[at].removeAttribute("aria-sort");
    });
  }

  /** Shows these items in this order. */
  show(items) {
    const focused = document.activeElement;
    const seen = new Set();
    items.forEach((item, at) => {
      const key = this.key(item);
      seen.add(key);
      const row = this.row(key, item);
      row.update(item);
      const there = this.body.children[at] ?? null;
      if (there !== row.element) this.body.insertBefore(row.element, there);
    });
    for (const [key, row] of this.kept) if (!seen.has(key)) this.drop(key, row);
    // Moving a row loses the focus.
    if (focused !== document.activeElement && this.body.contains(focused)) focused.focus({ preventScroll: true });
  }

  row(key, item) {
    const kept = this.kept.get(key);
    if (kept) return kept;
    const made = this.make(item);
    this.kept.set(key, made);
    return made;
  }

  drop(key, row) {
    row.element.remove();
    this.kept.delete(key);
  }

  /** Removes all rows. */
  clear() {
    for (const [key, row] of this.kept) this.drop(key, row);
  }
}
