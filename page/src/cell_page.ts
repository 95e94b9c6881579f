// Everything that is known of one cell, as HTML.

import { axes, axisNamed, cells, wire, type Cell, type Measured } from "./cells";
import { histogram, hull, latencyFigure, outcomes, together, trends } from "./figures";
import { bytes, commandLine, escape, num, relativeAddress, shellWord } from "./text";

/** A table of facts; a heading that begins with `>` is of numbers. */
function table(headings: string[], lines: string[]): string {
  const cells = headings.map((one) =>
    one.startsWith(">") ? `<th scope="col" class="n">${one.slice(1)}</th>` : `<th scope="col">${one}</th>`);
  const head = cells.length ? `<thead><tr>${cells.join("")}</tr></thead>` : "";
  return `<table class="facts">${head}<tbody>${lines.join("")}</tbody></table>`;
}

const part = (title: string, html: string): string => (html ? `<h3>${title}</h3>${html}` : "");
const row = (name: string, html: string | number): string => `<tr><th scope="row">${name}</th><td>${html}</td></tr>`;
const list = (lines: string[]): string =>
  lines.length ? `<ul>${lines.map((line) => `<li>${escape(line)}</li>`).join("")}</ul>` : "";

export function cellPage(cell: Cell): string {
  const repro = [wire.repro, ...axes.map((axis) => shellWord(`matrix.${axis.key}=[${axis.of(cell)}]`))].join(" ");
  return [
    `<div class="top"><h2 id="cell-name">${escape(cell.name)}</h2><button type="button" data-close>Close</button></div>`,
    outcome(cell),
    cell.message ? `<p>${escape(cell.message)}</p>` : "",
    cell.random ? `<p class="note">${escape(cell.random)}</p>` : "",
    part("Against the base", list(cell.changes)),
    part("First wrong node", firstWrong(cell)),
    cell.where?.details ? `<details><summary>Details</summary><pre>${escape(cell.where.details)}</pre></details>` : "",
    part("Findings about the file", list(cell.findings)),
    part("Reproduce", [...cell.questions, repro].map(commandLine).join("")),
    part("Stages", stages(cell)),
    part("Contract", contract(cell)),
    part("Error against eager", errors(cell)),
    part("Latency", cell.latency ? latencyFigure(cell.latency, cell.eager) : ""),
    part("History", history(cell)),
    part("File", file(cell)),
    cell.log && wire.logs ? `<p><a href="${relativeAddress(wire.logs, cell.log)}">Log</a></p>` : "",
  ].join("");
}

function outcome(cell: Cell): string {
  const at = cell.stage ? ` at ${escape(cell.stage)}` : "";
  const mark = cell.mark ? `<span class="tag">${escape(cell.mark)}</span>` : "";
  const kind = cell.errorClass ? `<code>${escape(cell.errorClass)}</code>` : "";
  return `<p><span class="tag v-${cell.verdict}">${cell.verdict}${at}</span>${mark}${kind}</p>`;
}

function firstWrong(cell: Cell): string {
  const where = cell.where;
  if (!where) return "";
  const code = (value: string): string => (value ? `<code>${escape(value)}</code>` : "");
  const lines: [string, string][] = [
    ["Source", code(where.source)],
    ["Node", code(where.node)],
    ["Operator", code(where.operator)],
    ["Module", code(where.module)],
    ["To blame", escape(where.blame)],
    ["Bisect says", escape(where.bisected)],
  ];
  const known = lines.filter(([, value]) => value);
  return known.length ? table([], known.map(([name, value]) => row(name, value))) : "";
}

function stages(cell: Cell): string {
  const lines = cell.actions.map(({ name, isCached, seconds }) =>
    `<tr><td>${escape(name)}</td><td>${isCached ? "from the cache" : "ran"}</td><td class="n">${num(seconds)}</td></tr>`);
  return lines.length ? table(["stage", "origin", ">seconds"], lines) : "";
}

function contract(cell: Cell): string {
  const lines = cell.contract.map(([name, asked, got]) =>
    `<tr><th scope="row">${escape(name)}</th><td><code>${escape(asked) || "any"}</code></td>` +
    `<td><code>${escape(got)}</code></td></tr>`);
  return lines.length ? table(["what", "requested", "in the file"], lines) : "";
}

function errors(cell: Cell): string {
  const runs = cell.runs;
  if (!runs.length) return "";
  const plotted = runs.find((run) => run.isPlotted);
  const precise = cell.float64 ? `<p class="note">Eager in float64: ${escape(cell.float64)}.</p>` : "";
  return [
    table(["sizes", "worst output", ">max abs", ">max rel", ">unequal"], runs.map(runLine)),
    plotted ? worstElement(plotted) : "",
    precise,
    plotted ? histogram(plotted) + hull(plotted) : "",
  ].join("");
}

function runLine(run: Measured): string {
  if (!run.output) return `<tr><td>${escape(run.sizes)}</td><td colspan="4">${escape(run.refusal)}</td></tr>`;
  const nonFinite = run.nonFinite ? `, ${run.nonFinite} NaN or Inf` : "";
  return [
    `<tr><td>${escape(run.sizes)}</td><td>${escape(run.output)} <span class="note">${escape(run.type)}</span></td>`,
    `<td class="n">${num(run.maxAbs)}</td><td class="n">${num(run.maxRel)}</td>`,
    `<td class="n">${run.unequal} / ${run.count}${nonFinite}</td></tr>`,
  ].join("");
}

function worstElement(run: Measured): string {
  const worst = run.worst;
  if (!worst) return "";
  const apart = worst.ulp === null ? "" : `, ${num(worst.ulp)} units in the last place apart`;
  return (
    `<p class="note" id="worst">Worst element <code>${escape(run.output + worst.index)}</code>: ` +
    `eager <code>${escape(worst.eager)}</code>, file <code>${escape(worst.file)}</code>${apart}; ` +
    `${worst.outside} of ${run.count} elements beyond the default tolerance of ${escape(run.dtype)}.</p>`
  );
}

function history(cell: Cell): string {
  const past = cell.past;
  if (past.length < 2) return "";
  const model = axisNamed("model"), name = model.of(cell);
  const own = cells.filter((one) => model.of(one) === name && one.past.length > 1);
  const all = own.length > 1
    ? `<details><summary>Median of the ${own.length} cells of ${escape(name)}</summary>${trends(together(own.map((one) => one.past)))}</details>`
    : "";
  return outcomes(past) + trends(past) + all;
}

function file(cell: Cell): string {
  const found = cell.file;
  if (!found) return "";
  const placed = cell.placed.map(([provider, count]) => `${escape(provider)} ${count}`).join(", ") || "–";
  const facts = table([], [
    row("Size", bytes(found.bytes)),
    row("Nodes", found.nodes),
    row("sha256", `<code>${found.sha256}…</code>`),
    row("Placed on", placed),
  ]);
  if (!wire.artifacts) return facts;
  const named = axes.filter((axis) => !["provider", "exporter"].includes(axis.axis)).map((axis) => axis.word(cell));
  const saved = escape(`${named.join("-")}.onnx`);
  const link = `<a href="${relativeAddress(wire.artifacts, found.path)}" download="${saved}">ONNX file</a>`;
  const look = `<code>netron ${escape(`${wire.artifacts}/${found.path}`)}</code>`;
  return `${facts}<p>${link} (external data, if any, lies beside it; to look at it: ${look})</p>`;
}
