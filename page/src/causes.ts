// Failures by cause, and what changed against the base. What is found out about one cell of a cause stands for all.

import { axisNamed, cells, text, wire, type Cell } from "./cells";
import { commandLine, element, escape, unique } from "./text";

const MOST_CHIPS = 12;
const MOST_CAUSES = 8;
const MOST_CHANGES = 15;

export function showCauses(): void {
  if (!wire.clusters.length) return;
  const section = element("clusters");
  section.hidden = false;
  const items = wire.clusters.map(cause);
  (section.querySelector("ol") as HTMLElement).innerHTML = items.slice(0, MOST_CAUSES).join("");
  const rest = items.slice(MOST_CAUSES);
  if (!rest.length) return;
  const folded = `<details><summary>${rest.length} more causes</summary><ol>${rest.join("")}</ol></details>`;
  section.insertAdjacentHTML("beforeend", folded);
}

function cause([verdict, title, kind, why, numbers, since, fresh]: (typeof wire.clusters)[number]): string {
  const own = numbers.map((index) => cells[index]);
  const model = axisNamed("model"), exporter = axisNamed("exporter");
  const severalModels = unique(own.map(model.of)).length > 1;
  const severalExporters = unique(own.map(exporter.of)).length > 1;
  const chips = own.slice(0, MOST_CHIPS).map((cell) => chip(cell, severalModels, severalExporters));
  const more = own.length > MOST_CHIPS ? `<span>and ${own.length - MOST_CHIPS} more</span>` : "";
  const news = fresh ? `, ${fresh === own.length ? "" : `${fresh} `}new` : "";
  const at = place(own[0]);
  const [question] = own[0].questions;
  return [
    `<li><b>${own.length} ${escape(text(verdict))}${news}</b>${escape(text(title))}`,
    `<p><code>${escape(text(kind))}</code> ${escape(text(why))}</p>`,
    text(since) ? `<p class="since">${escape(text(since))}</p>` : "",
    at ? `<p class="note">First wrong: ${at}</p>` : "",
    `<div class="chips">${chips.join("")}${more}</div>`,
    question ? commandLine(question) : "",
    "</li>",
  ].join("");
}

function chip(cell: Cell, severalModels: boolean, severalExporters: boolean): string {
  const words = [
    severalModels ? `${escape(axisNamed("model").of(cell))} ` : "",
    `opset ${axisNamed("opset").of(cell)} ${escape(axisNamed("dynamic").of(cell))}`,
    severalExporters ? ` ${escape(axisNamed("exporter").of(cell))}` : "",
    cell.mark ? ` · ${cell.mark}` : "",
  ];
  return `<button type="button" data-open="${cell.index}" aria-label="Open ${escape(cell.name)}">${words.join("")}</button>`;
}

function place(cell: Cell): string {
  const where = cell.where;
  if (!where) return "";
  return [where.operator, where.node, where.source].filter(Boolean).map((one) => `<code>${escape(one)}</code>`).join(" · ");
}

export function showChanges(): void {
  if (!wire.changes.length && !wire.contended) return;
  const section = element("changes");
  section.hidden = false;
  const note = wire.contended ? `<p class="note">${escape(wire.contended)}.</p>` : "";
  const parts = Object.entries(wire.titles).map(([kind, title]) => changesOf(kind, title));
  (section.querySelector("div") as HTMLElement).innerHTML = note + parts.join("");
}

function changesOf(kind: string, title: string): string {
  const own = wire.changes.filter((change) => change[0] === kind);
  if (!own.length) return "";
  const list = (part: typeof own): string => `<ul>${part.map(change).join("")}</ul>`;
  if (kind === "still") return `<details><summary>${title} (${own.length})</summary>${list(own)}</details>`; // no news
  const rest = own.slice(MOST_CHANGES);
  const folded = rest.length ? `<details><summary>${rest.length} more</summary>${list(rest)}</details>` : "";
  const decides = kind === "busy" && wire.decides ? `<p class="note">What decides:</p>${commandLine(wire.decides)}` : "";
  return `<h3>${title} (${own.length})</h3>${decides}${list(own.slice(0, MOST_CHANGES))}${folded}`;
}

function change([, cell, index, said]: (typeof wire.changes)[number]): string {
  const named = `<code>${escape(cell)}</code>`;
  return `<li>${index < 0 ? named : `<a href="#cell=${escape(cell)}">${named}</a>`} ${escape(text(said))}</li>`;
}
