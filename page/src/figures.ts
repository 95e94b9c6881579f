// Plots, as plain SVG.

import { cells, unexpected, wire, type Cell, type Earlier, type Latency, type Measured, type Quantity } from "./cells";
import { rows } from "./matrix";
import { bytes, element, escape, median, milliseconds, num } from "./text";

const MOST_BARS = 15;
const DECADES = 14;
const WIDE_SPAN = 20;
const LONGEST_NAME = 20;

type Anchor = "start" | "middle" | "end";

const fixed = (value: number): string => value.toFixed(1);
const line = (x1: number, y1: number, x2: number, y2: number, kind: string): string =>
  `<line x1="${fixed(x1)}" y1="${fixed(y1)}" x2="${fixed(x2)}" y2="${fixed(y2)}" class="${kind}"/>`;
const label = (x: number, y: number, text: string | number, anchor: Anchor = "start", kind = ""): string =>
  `<text x="${fixed(x)}" y="${fixed(y)}" text-anchor="${anchor}" class="${kind}">${escape(text)}</text>`;
const curve = (points: [number, number][], kind: string): string =>
  `<polyline class="${kind}" points="${points.map(([x, y]) => `${fixed(x)},${fixed(y)}`).join(" ")}"/>`;

function figure(caption: string, width: number, height: number, inner: string, said = caption): string {
  const drawing = `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${escape(said)}">${inner}</svg>`;
  return `<figure><figcaption>${caption}</figcaption>${drawing}</figure>`;
}

/** How many elements have an error of which decade. */
export function histogram(run: Measured): string {
  const decades = run.decades;
  const last = decades.at(-1);
  if (!last) return "";
  const floor = last[0] - DECADES; // what is smaller by so much is one bar: labels need room
  const merged = new Map<number, number>();
  for (const [decade, count] of decades) {
    const shown = Math.max(decade, floor);
    merged.set(shown, (merged.get(shown) ?? 0) + count);
  }
  const bins = [...merged];
  const low = bins[0][0], count = last[0] - low + 1;
  const most = Math.max(...bins.map((bin) => bin[1])), width = Math.min(60, 620 / count);
  const says = (decade: number): string => (decade === floor && decades[0][0] < floor ? `≤1e${decade}` : `1e${decade}`);
  const bars = bins.map(([decade, elements]) => {
    const height = (70 * Math.log1p(elements)) / Math.log1p(most), x = 40 + (decade - low) * width;
    return [
      `<rect class="bar" x="${x + 1}" y="${88 - height}" width="${width - 2}" height="${height}">`,
      `<title>${says(decade)}: ${elements}</title></rect>`,
      label(x + width / 2, 84 - height, elements, "middle", "soft"),
      label(x + width / 2, 103, says(decade), "middle", "soft"),
    ].join("");
  });
  const said = `Error histogram: ${bins.map(([decade, elements]) => `${elements} elements about 1e${decade}`).join(", ")}`;
  return figure("Elements by size of their error", 700, 110, bars.join("") + line(40, 88, 690, 88, "axis"), said);
}

/** The largest error by the size of the value, both logarithmic, with the tolerance. */
export function hull(run: Measured): string {
  const points = run.hull.filter(([x, y]) => x > 0 && y > 0);
  if (points.length < 2) return "";
  const tolerance = wire.tolerances[run.dtype];
  const bound = (x: number): number => (tolerance ? Math.log10(tolerance[0] + tolerance[1] * 10 ** x) : 0);
  const xs = points.map((point) => Math.log10(point[0])), ys = points.map((point) => Math.log10(point[1]));
  const x0 = Math.min(...xs), x1 = Math.max(...xs) + 1e-9;
  const all = tolerance ? [...ys, bound(x0), bound(x1)] : ys;
  const y0 = Math.floor(Math.min(...all)), y1 = Math.ceil(Math.max(...all));
  const toX = (x: number): number => 70 + (610 * (x - x0)) / (x1 - x0);
  const toY = (y: number): number => 150 - (135 * (y - y0)) / (y1 - y0 || 1);
  const parts = [
    line(70, 150, 690, 150, "axis"),
    line(70, 12, 70, 150, "axis"),
    label(64, 20, `1e${y1}`, "end", "soft"),
    label(64, 150, `1e${y0}`, "end", "soft"),
    label(70, 168, `|value| ${num(10 ** x0)}`, "start", "soft"),
    label(690, 168, num(10 ** x1), "end", "soft"),
    curve(points.map((_, at) => [toX(xs[at]), toY(ys[at])]), "curve"),
  ];
  if (tolerance) {
    const steps = Array.from({ length: 21 }, (_, at) => x0 + ((x1 - x0) * at) / 20);
    parts.push(curve(steps.map((x) => [toX(x), toY(bound(x))]), "tol"));
    parts.push(label(76, Math.max(12, toY(bound(x0)) - 5), "tolerance", "start", "soft"));
  }
  const beside = tolerance ? `, tolerance ${tolerance[0]} + ${tolerance[1]} of the value` : "";
  const said = `Hull of the errors from ${num(points[0][1])} to ${num(points.at(-1)?.[1])}${beside}`;
  return figure("Largest error by size of the value", 700, 178, parts.join(""), said);
}

export function latencyFigure(latency: Latency, eager: number | null): string {
  const { median: middle, p95, low, high } = latency;
  const most = Math.max(p95, eager ?? 0) * 1.05;
  const toX = (value: number): number => 70 + (540 * value) / most;
  const bar = (y: number, value: number, kind: string, name: string): string => [
    label(64, y + 13, name, "end"),
    `<rect x="70" y="${y}" width="${fixed(toX(value) - 70)}" height="18" class="${kind}"/>`,
    label(toX(value) + 6, y + 13, milliseconds(value)),
  ].join("");
  const inner = [
    eager ? bar(4, eager, "bar2", "eager") : "",
    bar(32, middle, "bar", "ONNX"),
    line(toX(low), 28, toX(low), 54, "mark"),
    line(toX(high), 28, toX(high), 54, "mark"),
    line(toX(low), 41, toX(high), 41, "mark"),
    line(toX(p95), 36, toX(p95), 46, "axis"),
  ];
  const beside = eager ? `; eager ${milliseconds(eager)}, ${num(eager / middle)} times as long` : "";
  const said = [
    `Median ${milliseconds(middle)}, 95 % interval ${milliseconds(low)} to ${milliseconds(high)}, `,
    `p95 ${milliseconds(p95)}, ${latency.runs} runs${beside}${latency.isBusy ? "; the machine was busy" : ""}`,
  ].join("");
  return `${figure("Median and its 95 % interval", 700, 60, inner.join(""), said)}<p class="note">${said}</p>`;
}

/** Outcomes of earlier runs, a dot each. */
export function outcomes(past: Earlier[]): string {
  const dots = past.map((one, at) => {
    const kind = unexpected.has(one.verdict) ? "dot bad" : "dot";
    const x = 10 + (660 * at) / Math.max(1, past.length - 1);
    return `<circle cx="${fixed(x)}" cy="8" r="5" class="${kind}"><title>${escape(one.started)} ${one.verdict}</title></circle>`;
  });
  const bad = past.filter((one) => unexpected.has(one.verdict)).length;
  return figure(`Last ${past.length} runs: ${bad ? `${bad} bad` : "all good"}`, 680, 16, dots.join(""));
}

const QUANTITIES: [quantity: Quantity, name: string, text: (value: number) => string][] = [
  ["error", "Largest error", num],
  ["latency", "Latency", milliseconds],
  ["seconds", "Capture and translation", (value) => `${num(value)} s`],
  ["bytes", "File size", bytes],
];

/** Error, latency, seconds and bytes of earlier runs, a small curve each; what never changed is said in words. */
export function trends(past: Earlier[]): string {
  const curves = QUANTITIES.map(([quantity, name, text]) => {
    const known = past.flatMap((one, at): [number, number][] => {
      const value = one[quantity];
      return value === null ? [] : [[at, value]];
    });
    const last = known.at(-1);
    if (!last) return "";
    const values = known.map(([, value]) => value), low = Math.min(...values), high = Math.max(...values);
    const toX = (at: number): number => 6 + (198 * at) / Math.max(1, past.length - 1);
    const toY = (value: number): number => (high > low ? 38 - (32 * (value - low)) / (high - low) : 22);
    const dots = known.map(([at, value]) =>
      `<circle cx="${fixed(toX(at))}" cy="${fixed(toY(value))}" r="2.5" class="dot"><title>${escape(past[at].started)} ${text(value)}</title></circle>`);
    const points = known.map(([at, value]): [number, number] => [toX(at), toY(value)]);
    const span = high > low ? `${text(last[1])} (${text(low)} to ${text(high)})` : `${text(last[1])}, always`;
    return figure(`${name}: ${span}`, 210, 44, line(0, 43, 210, 43, "axis") + curve(points, "curve") + dots.join(""));
  });
  return curves.some(Boolean) ? `<div class="trends">${curves.join("")}</div>` : "";
}

/** The history of several cells as one: medians run by run, bad where one of them was. */
export function together(pasts: Earlier[][]): Earlier[] {
  const byStart = new Map<string, Earlier[]>();
  for (const one of pasts.flat()) byStart.set(one.started, [...(byStart.get(one.started) ?? []), one]);
  return [...byStart].sort(([one], [other]) => (one < other ? -1 : 1)).map(([started, own]) => {
    const middle = (quantity: Quantity): number | null => {
      const known = own.flatMap((one) => one[quantity] ?? []);
      return known.length ? median(known) : null;
    };
    const { verdict } = own.find((one) => unexpected.has(one.verdict)) ?? own[0];
    return {
      verdict, started, latency: middle("latency"), error: middle("error"), bytes: middle("bytes"), seconds: middle("seconds"),
    };
  });
}

function bars(title: string, values: [string, number][], text: (value: number) => string): string {
  const top = values.filter((pair) => pair[1] > 0).sort((a, b) => b[1] - a[1]).slice(0, MOST_BARS);
  const last = top.at(-1);
  if (!last) return "";
  const most = top[0][1], least = last[1], step = 20;
  const isWide = most / least > WIDE_SPAN; // one must not hide all others
  const length = (value: number): number =>
    190 * (isWide ? Math.log((2 * value) / least) / Math.log((2 * most) / least) : value / most);
  const heading = isWide ? `${title} (logarithmic)` : title;
  const inner = top.map(([name, value], at) => {
    const short = name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 1)}…` : name;
    return [
      label(150, at * step + 14, short, "end"),
      `<rect class="bar" x="156" y="${at * step + 3}" width="${fixed(length(value))}" height="14"/>`,
      label(162 + length(value), at * step + 14, text(value), "start", "soft"),
    ].join("");
  });
  const said = `${heading}: ${top.map(([name, value]) => `${name} ${text(value)}`).join(", ")}`;
  return figure(heading, 430, top.length * step + 4, inner.join(""), said);
}

/** Medians by model, below the matrix. */
export function showPlots(): void {
  const byModel = (of: (cell: Cell) => number | null): [string, number][] =>
    [...rows].map(([model, own]) => {
      const values = own.flatMap((cell) => (cell ? [of(cell) ?? 0] : [])).filter((value) => value > 0);
      return [model, values.length ? median(values) : 0];
    });
  if (!cells.length) return;
  element("plots").innerHTML = [
    bars("Latency, median", byModel((cell) => cell.latency?.median ?? null), milliseconds),
    bars("Speed-up over eager, median", byModel((cell) => cell.speedUp), (value) => `${num(value)}x`),
    bars("File size", byModel((cell) => cell.file?.bytes ?? null), bytes),
    bars("Seconds of capture and translation", byModel((cell) => cell.exportSeconds), (value) => `${num(value)} s`),
  ].join("");
}
