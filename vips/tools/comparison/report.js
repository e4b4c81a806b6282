
"use strict";
// Headings of sortable tables become buttons. Without this script the tables can still be read.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const hint = document.createElement("small");
  hint.className = "hint";
  hint.textContent = " The headings sort the table.";
  table.caption.firstElementChild.append(hint);
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const direction = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", direction);
      const sign = direction === "ascending" ? 1 : -1;
      const rows = [...body.rows].map((row) => [key(row.cells[column]), row]);
      rows.sort(([a], [b]) => compare(a, b, sign));
      body.append(...rows.map(([, row]) => row));
    });
  });
}

function key(cell) {
  const sort = cell.dataset.sort;
  if (sort === undefined) return cell.textContent;
  return sort === "" ? null : Number(sort.replace("inf", "Infinity"));
}

function compare(a, b, sign) {
  if (a === null || b === null) return (a === null) - (b === null); // missing values come last in both directions
  if (typeof a === "number") return sign * (a < b ? -1 : a > b ? 1 : 0);
  return sign * a.localeCompare(b, "en", { numeric: true });
}
