// A table that is updated often. Rows are reused and only changed texts are written, so that focus, selection and
// scroll position stay.

import { cards, h, label, select } from "./dom.js";

export class KeptTable {
  /**
   * `columns` are `{ name, kind, key, sorted, title }`: one with a key can be sorted, at first `ascending` or
   * `descending`. `key` identifies an item, `make(item)` returns `{ element, update(item) }`, and a click on a column's
   * head calls `sort(key, direction)`.
   */
  constructor(caption, columns, { key, make, sort }) {
    Object.assign(this, { columns, key, make, sort });
    this.kept = new Map();
    this.body = h("tbody");
    this.heads = columns.map((column) => h("th", { scope: "col", class: column.kind }, this.head(column)));
    this.names = columns.map((column) => column.name);
    this.element = h(
      "div.scroll",
      { role: "region", "aria-label": caption, tabindex: "0" },
      this.sorter(),
      cards(caption, this.heads, this.body),
    );
  }

  head(column) {
    if (!column.name) return h("span.hidden", column.title);
    if (!column.key) return column.name;
    return h("button", { type: "button", title: column.title, onclick: () => this.clicked(column) }, column.name);
  }

  /** Creates the choice of the order for a narrow window, in which the heads are not shown. */
  sorter() {
    const sortable = this.columns.filter((column) => column.key);
    if (!sortable.length) return null;
    this.order = select(
      { onchange: (event) => this.sort(event.target.value, this.columnOf(event.target.value).sorted) },
      sortable.map((column) => [column.key, column.name]),
    );
    return h("label.check.sorter", "Sort by", this.order);
  }

  columnOf(key) {
    return this.columns.find((column) => column.key === key);
  }

  /** Sorts by a column, or reverses the order that it has. */
  clicked(column) {
    const head = this.heads[this.columns.indexOf(column)];
    const now = head.getAttribute("aria-sort");
    const other = now === "ascending" ? "descending" : "ascending";
    this.sort(column.key, now ? other : column.sorted);
  }

  /** Marks the column by which the items are sorted. */
  sorted(key, direction = this.columnOf(key)?.sorted) {
    this.columns.forEach((column, at) => {
      if (column.key === key && direction) this.heads[at].setAttribute("aria-sort", direction);
      else this.heads[at].removeAttribute("aria-sort");
    });
    if (this.order && this.order !== document.activeElement) this.order.value = key;
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
    label([made.element], this.names);
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

/** Sorts rows by `value(row)`, texts or numbers; those without a value come last. */
export function sortRows(rows, value, direction) {
  const sign = direction === "descending" ? -1 : 1;
  const compare = (one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === null || a === undefined || b === null || b === undefined) return (a === null || a === undefined) - (b === null || b === undefined);
    return sign * (typeof a === "string" ? a.localeCompare(b) : a - b);
  };
  return [...rows].sort(compare);
}
