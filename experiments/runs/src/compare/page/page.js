"use strict";

const announcement = document.getElementById("sorted");
for (const button of document.querySelectorAll("table.sortable thead button")) {
    button.addEventListener("click", () => sort(button.parentElement));
}

// Sorts a table by the column of a heading; a second time, the other way round.
function sort(heading) {
    const table = heading.closest("table");
    const before = heading.getAttribute("aria-sort");
    const first = heading.dataset.first ?? "ascending";
    const direction = before === null ? first : before === "ascending" ? "descending" : "ascending";
    const sign = direction === "ascending" ? 1 : -1;
    const compare = heading.classList.contains("number") ? numbers(sign) : texts(sign);
    const rows = [...table.tBodies[0].rows].map((row) => ({ row, cell: row.cells[heading.cellIndex] }));
    rows.sort((one, other) => compare(one.cell, other.cell));
    table.tBodies[0].append(...rows.map(({ row }) => row));
    for (const other of heading.parentElement.cells) {
        other.removeAttribute("aria-sort");
    }
    heading.setAttribute("aria-sort", direction);
    announcement.textContent = `${table.caption.textContent}: sorted by ${heading.textContent}, ${direction}`;
}

// What has no number comes last in both directions.
function numbers(sign) {
    const value = (cell) => ("value" in cell.dataset ? Number(cell.dataset.value) : NaN);
    return (one, other) => {
        const [a, b] = [value(one), value(other)];
        return Number.isNaN(a) || Number.isNaN(b) ? Number.isNaN(a) - Number.isNaN(b) : sign * (a - b);
    };
}

function texts(sign) {
    return (one, other) => sign * one.textContent.trim().localeCompare(other.textContent.trim(), "en", { numeric: true });
}
