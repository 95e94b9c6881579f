// The matrix and its filters: a row for each model, a column for each exporter, provider, dynamic setting and opset.

import { axes, axisNamed, cells, unexpected, verdicts, wire, type Cell } from "./cells";
import { legend, square } from "./shades";
import { element, escape, unique } from "./text";

const MANY_ROWS = 60;
const MANY_CELLS = 2000;
const PAUSE_MS = 120;
const SEPARATOR = "\u0000";

const model = axisNamed("model"), dynamic = axisNamed("dynamic"), opset = axisNamed("opset");
const filtered = axes.slice(1);
const dynamics = unique(cells.map(dynamic.of));
/** Axes that part columns beside dynamic setting and opset. */
const parted = [
  axisNamed("exporter"),
  axisNamed("provider"),
  ...filtered.filter((one) => !["dynamic", "opset", "provider", "exporter"].includes(one.axis)),
];
const areSeveral = parted.map((one) => unique(cells.map(one.of)).length > 1);

function columnKey(cell: Cell): string {
  const order = String(dynamics.indexOf(dynamic.of(cell))).padStart(3, "0");
  return [...parted.map((one) => one.of(cell)), order, opset.of(cell).padStart(3, "0")].join(SEPARATOR);
}

const keys = unique(cells.map(columnKey)).sort();
const columnOf = new Map(keys.map((key, at) => [key, at]));
/** Cells by model and column. */
export const rows = new Map<string, (Cell | null)[]>();
for (const cell of cells) {
  const own = rows.get(model.of(cell)) ?? Array<Cell | null>(keys.length).fill(null);
  own[columnOf.get(columnKey(cell)) as number] = cell;
  rows.set(model.of(cell), own);
}

const opsetOf = (key: string): number => Number(key.split(SEPARATOR).at(-1));

function groupOf(key: string): string {
  const words = key.split(SEPARATOR);
  const parts = parted.map((_, at) => (areSeveral[at] ? words[at] : ""));
  return [...parts, dynamics[Number(words.at(-2))]].filter(Boolean).join(" · ");
}

const chosen = (id: string): string => element<HTMLSelectElement>(id).value;

export function fillFilters(): void {
  const option = (value: string): string => `<option>${escape(value)}</option>`;
  for (const one of filtered) {
    const values = unique(cells.map(one.of));
    if (one.axis === "opset") values.sort((a, b) => Number(a) - Number(b));
    const select = element(`f-${one.axis}`);
    select.insertAdjacentHTML("beforeend", values.map(option).join(""));
    const label = select.parentElement as HTMLElement;
    if (values.length < 2) {
      label.hidden = true;
      label.style.display = "none";
    }
  }
  const marks = [["new", "new failures"], ["still", "still failing"], ["fixed", "fixed"]];
  const against = marks.map(([mark, words]) => `<option value='mark:${mark}'>${words}</option>`);
  element("f-verdict").insertAdjacentHTML("beforeend", [
    `<option value="bad">unexpected</option>`,
    ...verdicts.filter((verdict) => wire.counts[verdict]).map(option),
    ...(cells.some((cell) => cell.mark) ? against : []),
  ].join(""));
}

const isOnAxes = (cell: Cell): boolean =>
  filtered.every((one) => !chosen(`f-${one.axis}`) || one.of(cell) === chosen(`f-${one.axis}`));

function isMatch(cell: Cell, verdict: string, query: string): boolean {
  if (verdict === "bad" && !unexpected.has(cell.verdict)) return false;
  if (verdict.startsWith("mark:") && cell.mark !== verdict.slice("mark:".length)) return false;
  if (verdict && verdict !== "bad" && !verdict.startsWith("mark:") && cell.verdict !== verdict) return false;
  if (!query) return true;
  return `${cell.name} ${cell.stage} ${cell.errorClass} ${cell.message}`.toLowerCase().includes(query);
}

type Row = [model: string, cells: (Cell | null)[]];

/** Rows in the order that is asked for; those of one rank by name. */
function ordered(found: Row[], isShown: (cell: Cell) => boolean): Row[] {
  const most = (of: (cell: Cell) => number) => ([, own]: Row): number =>
    Math.max(-Infinity, ...own.filter((cell) => cell !== null).filter(isShown).map(of));
  const ranks: Record<string, (row: Row) => number> = {
    bad: ([, own]) => own.filter((cell) => cell?.isBad).length,
    latency: most((cell) => cell.latency?.median ?? -1),
    error: most((cell) => cell.maxAbs ?? -1),
  };
  const rank = ranks[chosen("sort")];
  return found.sort((a, b) => (rank ? rank(b) - rank(a) : 0) || (a[0] < b[0] ? -1 : 1));
}

function head(shown: number[]): string {
  const groups: [string, number][] = [];
  for (const at of shown) {
    const group = groupOf(keys[at]), last = groups.at(-1);
    if (last && last[0] === group) last[1]++;
    else groups.push([group, 1]);
  }
  const wide = groups.map(([group, n]) => `<th scope="colgroup" colspan="${n}"><span>${escape(group)}</span></th>`);
  const narrow = shown.map((at) => {
    const number = opsetOf(keys[at]);
    return `<th scope="col" aria-label="${escape(groupOf(keys[at]))} opset ${number}">${number}</th>`;
  });
  return (
    `<thead><tr><th class="corner" scope="col" rowspan="2">model</th>${wide.join("")}</tr>` +
    `<tr>${narrow.join("")}</tr></thead>`
  );
}

export function draw(): void {
  const query = element<HTMLInputElement>("q").value.trim().toLowerCase(), verdict = chosen("f-verdict");
  const shade = chosen("shade");
  const onAxes = cells.map(isOnAxes);
  const matching = cells.map((cell, at) => onAxes[at] && isMatch(cell, verdict, query));
  const isShown = (cell: Cell): boolean => matching[cell.index];
  const visible = unique(cells.filter((_, at) => onAxes[at]).map((cell) => columnOf.get(columnKey(cell)) as number));
  const shown = visible.sort((a, b) => a - b);
  const order = ordered([...rows].filter(([, own]) => own.some((cell) => cell !== null && isShown(cell))), isShown);
  const body = order.map(([name, own]) => {
    const squares = shown.map((at) => square(own[at], shade)).join("");
    return `<tr><th scope="row" title="${escape(name)}">${escape(name)}</th>${squares}</tr>`;
  });
  const isMarked = cells.some((cell) => /new|fixed/.test(cell.mark));
  const outlined = isMarked ? '<span class="outlined">outlined</span> new or fixed against the base' : "";
  element("legend").innerHTML = legend(shade) + outlined;
  const grid = element("grid");
  grid.classList.toggle("wide", shade !== "verdict");
  grid.parentElement?.classList.toggle("tall", order.length > MANY_ROWS);
  const caption = "One row per model, one column per exporter, provider, dynamic setting and opset";
  grid.innerHTML = `<caption hidden>${caption}</caption>${head(shown)}<tbody>${body.join("")}</tbody>`;
  if (query || verdict)
    for (const at of grid.querySelectorAll<HTMLElement>("td[data-i]"))
      if (!matching[Number(at.dataset.i)]) at.classList.add("dim");
  const first = grid.querySelector<HTMLElement>("td[data-i]:not(.dim)");
  if (first) first.tabIndex = 0;
  element("shown").textContent = `${matching.filter(Boolean).length} of ${cells.length} cells, ${order.length} model${order.length === 1 ? "" : "s"}`;
}

export function listenToFilters(): void {
  let waiting = 0;
  const form = element<HTMLFormElement>("filters");
  form.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = window.setTimeout(draw, cells.length > MANY_CELLS ? PAUSE_MS : 0);
  });
  form.addEventListener("reset", () => window.setTimeout(draw));
  form.addEventListener("submit", (event) => event.preventDefault());
}
