// Keys and clicks: arrows and Home/End move in the matrix, Enter opens a cell, / searches.

import { closeCell, isOpen, openCell } from "./drawer";
import { element } from "./text";

const STEPS: Record<string, [number, number]> = {
  ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1],
};
const SQUARE = "td[data-i]";

function focus(from: HTMLElement, to: HTMLElement | undefined): void {
  if (!to) return;
  from.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
  to.scrollIntoView({ block: "nearest", inline: "nearest" });
}

/** The next square in a direction; empty places are passed over. */
function next(from: HTMLElement, dx: number, dy: number): HTMLElement | undefined {
  let row: Element | null = from.parentElement;
  let column = [...(row?.children ?? [])].indexOf(from);
  for (;;) {
    column += dx;
    if (dy && row) row = dy > 0 ? row.nextElementSibling : row.previousElementSibling;
    const to = row?.children[column];
    if (!(to instanceof HTMLTableCellElement) || to.tagName !== "TD") return undefined;
    if (to.dataset.i !== undefined) return to;
  }
}

function keyInMatrix(event: KeyboardEvent): void {
  const at = (event.target as HTMLElement).closest<HTMLElement>(SQUARE);
  if (!at) return;
  const step = STEPS[event.key];
  const row = [...(at.parentElement?.querySelectorAll<HTMLElement>(SQUARE) ?? [])];
  if (step) focus(at, next(at, ...step));
  else if (event.key === "Enter" || event.key === " ") openCell(Number(at.dataset.i));
  else if (event.key === "Home") focus(at, row[0]);
  else if (event.key === "End") focus(at, row.at(-1));
  else return;
  event.preventDefault();
}

function click(event: MouseEvent): void {
  const target = event.target as HTMLElement;
  const opener = target.closest<HTMLElement>("[data-open]"), square = target.closest<HTMLElement>(`#grid ${SQUARE}`);
  if (opener) openCell(Number(opener.dataset.open));
  else if (square) openCell(Number(square.dataset.i));
  else if (target === element("cell") || target.closest("[data-close]")) closeCell();
  const copy = target.closest<HTMLElement>("[data-copy]");
  if (!copy || !navigator.clipboard) return;
  void navigator.clipboard.writeText(copy.dataset.copy ?? "").then(() => { copy.textContent = "Copied"; });
}

export function listenToKeys(): void {
  element("grid").addEventListener("keydown", keyInMatrix);
  document.addEventListener("click", click);
  document.addEventListener("keydown", (event) => {
    const isTyping = /INPUT|SELECT|TEXTAREA/.test((event.target as HTMLElement).tagName);
    if (event.key !== "/" || isTyping || isOpen()) return;
    event.preventDefault();
    element("q").focus();
  });
}
