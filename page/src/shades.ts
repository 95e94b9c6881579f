// What a square of the matrix shows beside its outcome: error, latency or speed-up, as a label and as a colour.

import { axisNamed, cells, glyphs, verdicts, wire, type Cell } from "./cells";
import { escape, milliseconds, num } from "./text";

interface Shade {
  label: (cell: Cell) => string;
  /** From 0, light, to 1, dark; null where there is nothing to show. */
  value: (cell: Cell) => number | null;
  hue: number;
  legend: string;
}

// Latencies are coloured within their row.
const fastest = new Map<string, number>();
const model = axisNamed("model");
for (const cell of cells) {
  const latency = cell.latency;
  if (latency) fastest.set(model.of(cell), Math.min(latency.median, fastest.get(model.of(cell)) ?? Infinity));
}

const short = (value: number): string => (value === 0 ? "0" : value.toExponential(0).replace("e+", "e"));

const shades: Record<string, Shade> = {
  error: {
    label: (cell) => short(cell.maxAbs ?? 0),
    value: ({ maxAbs }) => (maxAbs === null ? null : maxAbs === 0 ? 0 : (Math.log10(maxAbs) + 9) / 8),
    hue: 32,
    legend: "Largest absolute difference from eager; the darker, the larger (1e-9 to 0.1). ",
  },
  latency: {
    label: ({ latency }) => (latency ? `${latency.isBusy ? "~" : ""}${milliseconds(latency.median).replace(" ", "")}` : ""),
    value: (cell) => (cell.latency ? Math.log2(cell.latency.median / (fastest.get(model.of(cell)) ?? 1)) / 2 : null),
    hue: 205,
    legend:
      "Median time of one inference; the darker, the slower beside the model's fastest cell (up to 4 times). ~ busy machine. ",
  },
  speed: {
    label: ({ speedUp }) => `${num(+(speedUp ?? 0).toPrecision(2))}x`,
    value: ({ speedUp }) => (speedUp === null ? null : (Math.log2(speedUp) + 1) / 5),
    hue: 205,
    legend: "Eager's time over the file's; the darker, the faster (0.5 to 16 times). ",
  },
};

export function legend(shade: string): string {
  if (shades[shade]) return shades[shade].legend;
  const shown = verdicts.filter((verdict) => wire.counts[verdict]);
  return shown.map((verdict) => `<span class="v-${verdict}">${glyphs[verdict]} ${verdict}</span>`).join("");
}

/** One square of the matrix. */
export function square(cell: Cell | null, shade: string): string {
  if (!cell) return `<td class="empty"></td>`;
  const verdict = cell.verdict;
  const star = cell.random && /^(x?pass|flaky)$/.test(verdict) ? "*" : "";
  const rest = `data-m="${cell.mark}"`, said = `aria-label="${escape(cell.description)}"`;
  const value = shades[shade]?.value(cell) ?? null;
  if (value === null || (verdict !== "pass" && verdict !== "xpass"))
    return `<td data-i="${cell.index}" tabindex="-1" class="v-${verdict}" ${rest} ${said}>${glyphs[verdict]}${star}</td>`;
  const dark = Math.max(0, Math.min(1, value));
  const light = shade === "speed" ? 50 + 42 * (1 - dark) : 92 - 42 * dark;
  const colour = `style="background:hsl(${shades[shade].hue} 75% ${light}%)"`;
  return `<td data-i="${cell.index}" tabindex="-1" class="heat" ${rest} ${colour} ${said}>${shades[shade].label(cell)}${star}</td>`;
}
