"use strict";
(() => {
  const { columns, rows } = JSON.parse(document.getElementById("data").textContent);
  const list = document.getElementById("rows");
  const search = document.getElementById("search");
  const outcome = document.getElementById("outcome");
  const shown = document.getElementById("shown");
  const PART = 100; // rows that are made at once; the next ones come when the end is near
  const words = rows.map((row) => row.map((cell) => (typeof cell === "string" ? cell : cell ? cell.slice(0, 4).join(" ") : "")).join(" ").toLowerCase());
  let found = [];
  let made = 0;

  const element = (tag, name, text) => {
    const one = document.createElement(tag);
    if (name) one.className = name;
    if (text !== undefined) one.textContent = text;
    return one;
  };

  const told = (row) => {
    const more = element("div", "more");
    columns.forEach((column, index) => {
      const cell = row[index + 1];
      if (!cell) return;
      more.append(element("h2", "", `${column}: ${cell[1]}${cell[2] ? `, ${cell[2]}` : ""}`));
      if (cell[3]) more.append(element("p", "", cell[3]));
      if (cell[4]) {
        more.append(element("pre", "", cell[4]));
        if (cell[5]) {
          const link = element("a", "", "its repro");
          link.href = cell[5];
          more.append(link);
        }
      }
    });
    return more;
  };

  const line = (row) => {
    const item = element("li");
    const details = element("details");
    const summary = element("summary");
    summary.append(element("span", "name", row[0]));
    columns.forEach((column, index) => {
      const cell = row[index + 1];
      if (cell) summary.append(element("span", `cell k-${cell[0]}`, `${column}: ${cell[1]}`));
    });
    details.append(summary);
    details.addEventListener("toggle", () => {
      if (details.open && details.children.length === 1) details.append(told(row));
    });
    item.append(details);
    return item;
  };

  const more = () => {
    const part = document.createDocumentFragment();
    for (const index of found.slice(made, made + PART)) part.append(line(rows[index]));
    made = Math.min(found.length, made + PART);
    list.append(part);
  };

  const takes = (row, wanted) => {
    const cells = row.slice(1).filter(Boolean);
    if (wanted === "") return true;
    if (wanted === "pass") return cells.length > 0 && cells.every((cell) => cell[0] === "pass");
    if (wanted.startsWith("stage:")) return cells.some((cell) => cell[0] === "fail" && cell[1] === wanted.slice(6));
    return cells.some((cell) => cell[0] === wanted);
  };

  const filter = () => {
    const terms = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = [];
    rows.forEach((row, index) => {
      if (takes(row, outcome.value) && terms.every((term) => words[index].includes(term))) found.push(index);
    });
    made = 0;
    list.replaceChildren();
    shown.textContent = `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} architectures`;
    more();
  };

  const near = () => {
    while (made < found.length && list.getBoundingClientRect().bottom < 2 * window.innerHeight) more();
  };
  document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
  search.addEventListener("input", () => { filter(); near(); });
  outcome.addEventListener("change", () => { filter(); near(); });
  window.addEventListener("scroll", near, { passive: true });
  window.addEventListener("resize", near);
  filter();
  near();
})();
