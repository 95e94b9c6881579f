// One cell's page, beside the matrix: it opens, has an address, and gives the focus back where it came from.

import { cells } from "./cells";
import { cellPage } from "./cell_page";
import { element } from "./text";

const ADDRESS = "#cell=";
let opener: Element | null = null;

const dialog = (): HTMLDialogElement => element<HTMLDialogElement>("cell");

export const isOpen = (): boolean => dialog().open;

export function closeCell(): void {
  dialog().close();
}

export function openCell(index: number): void {
  opener = document.activeElement;
  const cell = cells[index];
  element("cell-body").innerHTML = cellPage(cell);
  history.replaceState(null, "", `${ADDRESS}${encodeURIComponent(cell.name)}`);
  if (!dialog().open) dialog().showModal();
  dialog().scrollTop = 0;
}

/** Opens the cell that the page's address names. */
export function openFromAddress(): void {
  if (!location.hash.startsWith(ADDRESS)) return;
  const wanted = decodeURIComponent(location.hash.slice(ADDRESS.length));
  const found = cells.find((cell) => cell.name === wanted);
  if (found) openCell(found.index);
}

export function listenToDrawer(): void {
  dialog().addEventListener("close", () => {
    history.replaceState(null, "", location.pathname + location.search);
    if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
  });
  addEventListener("hashchange", openFromAddress);
}
