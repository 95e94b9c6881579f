// The page's data with names in place of positions: one `Cell` for each row, read from it when it is asked for.

import { milliseconds, num, shellWord } from "./text";
import type { Wire, WireAction, WireFacts, WireFile, WireLatency, WireRun } from "./wire";

export const wire: Wire = JSON.parse(document.getElementById("data")?.textContent ?? "{}");
const texts = wire.text;
export const verdicts = Object.keys(wire.counts);
export const unexpected = new Set(wire.unexpected);
export const glyphs: Record<string, string> = {
  pass: "✓", fail: "✗", skip: "–", xfail: "x", xpass: "!", flaky: "≈", missing: "?",
};

/** An axis of the matrix: its values of a cell, and as the cell's name has them. */
export interface Axis {
  axis: string;
  key: string;
  of: (cell: Cell) => string;
  word: (cell: Cell) => string;
}

export interface Place {
  source: string;
  node: string;
  operator: string;
  details: string;
  module: string;
  blame: string;
  bisected: string;
}

export interface Measured {
  sizes: string;
  refusal: string;
  output: string;
  dtype: string;
  maxAbs: number | null;
  maxRel: number | null;
  unequal: number;
  count: number;
  nonFinite: number;
  type: string;
  hull: [number, number][];
  decades: [number, number][];
  worst: { index: string; eager: string; file: string; ulp: number | null; outside: number } | null;
  isPlotted: boolean;
}

export interface Latency {
  median: number;
  p95: number;
  low: number;
  high: number;
  runs: number;
  isBusy: boolean;
}

/** A quantity of which runs have a history. */
export type Quantity = "latency" | "error" | "bytes" | "seconds";

/** A cell in an earlier run. */
export type Earlier = { verdict: string; started: string } & Record<Quantity, number | null>;

export class Cell {
  private readonly facts: WireFacts;

  constructor(readonly index: number, readonly values: number[], facts: WireFacts) {
    this.facts = facts;
  }

  get verdict(): string { return verdicts[this.facts[0]]; }
  get stage(): string { return texts[this.facts[1]]; }
  get errorClass(): string { return texts[this.facts[2]]; }
  get message(): string { return texts[this.facts[3]]; }
  get maxAbs(): number | null { return this.facts[4]; }
  get eager(): number | null { return this.facts[7]; }
  get findings(): string[] { return this.facts[11].map((one) => texts[one]); }
  get log(): string { return texts[this.facts[12]]; }
  get mark(): string { return texts[this.facts[14]]; }
  get changes(): string[] { return this.facts[15].map((one) => texts[one]); }
  get contract(): [string, string, string][] {
    return this.facts[17].map(([name, asked, got]) => [texts[name], texts[asked], texts[got]]);
  }
  get placed(): [string, number][] { return this.facts[18].map(([provider, count]) => [texts[provider], count]); }
  get float64(): string { return texts[this.facts[19]]; }
  /** How its random outputs were judged; empty where they are none. */
  get random(): string { return texts[this.facts[20]]; }

  get latency(): Latency | null {
    const found: 0 | WireLatency = this.facts[6];
    if (!found) return null;
    const [median, p95, low, high, runs, busy] = found;
    return { median, p95, low, high, runs, isBusy: Boolean(busy) };
  }

  get file(): { path: string; sha256: string; bytes: number; nodes: number } | null {
    const found: 0 | WireFile = this.facts[8];
    return found ? { path: texts[found[0]], sha256: texts[found[1]], bytes: found[2], nodes: found[3] } : null;
  }

  get actions(): { name: string; isCached: boolean; seconds: number }[] {
    return this.facts[9].map(([name, cached, seconds]: WireAction) => ({
      name: texts[name], isCached: Boolean(cached), seconds,
    }));
  }

  get runs(): Measured[] { return this.facts[10].map(measured); }

  get where(): Place | null {
    const found = this.facts[13];
    if (!found) return null;
    const [source, node, operator, details, module, blame, bisected] = found.map((one) => texts[one]);
    return { source, node, operator, details, module: module ?? "", blame: blame ?? "", bisected: bisected ?? "" };
  }

  get past(): Earlier[] {
    const found = this.facts[16];
    if (!found) return [];
    const [digits, starts, ...series] = found;
    const [latency, error, bytes, seconds] = series.map((one) => (at: number) => (one.length > 1 ? one[at] : one[0]));
    return texts[starts].split(" ").map((started, at) => ({
      verdict: verdicts[+digits[at]], started, latency: latency(at), error: error(at), bytes: bytes(at), seconds: seconds(at),
    }));
  }

  get name(): string { return axes.map((one) => one.word(this)).join("/"); }

  get isBad(): boolean { return unexpected.has(this.verdict); }

  /** How many times as fast as eager the file is. */
  get speedUp(): number | null {
    const { latency, eager } = this;
    return latency && eager ? eager / latency.median : null;
  }

  /** What capture and translation, or a plug-in exporter, took. */
  get exportSeconds(): number {
    return this.actions
      .filter((one) => /Capture|Translate|Plugin/.test(one.name))
      .reduce((sum, one) => sum + one.seconds, 0);
  }

  /** Command lines that say more about a failure. */
  get questions(): string[] {
    if (!/^x?fail$/.test(this.verdict) || wire.unasked.includes(this.errorClass)) return [];
    const run = wire.run ? ` --run ${shellWord(wire.run)}` : "";
    const verbs = wire.questions[this.stage] ?? [];
    return verbs.map((verb) => `python -m batch_export ${verb} ${shellWord(this.name)}${run}`);
  }

  /** All of it in a line, for those who hear the page. */
  get description(): string {
    return [
      `${this.name}: ${this.verdict}${this.stage ? ` at ${this.stage}` : ""}`,
      this.mark,
      this.maxAbs !== null ? `error ${num(this.maxAbs)}` : "",
      this.random ? "judged by distribution" : "",
      this.latency ? milliseconds(this.latency.median) : "",
    ].filter(Boolean).join(", ");
  }
}

function measured(run: WireRun): Measured {
  const [sizes, refusal] = run;
  const none = {
    output: "", dtype: "", maxAbs: null, maxRel: null, unequal: 0, count: 0, nonFinite: 0, type: "", hull: [],
    decades: [], worst: null, isPlotted: false,
  };
  if (run.length === 2) return { sizes: texts[sizes], refusal: texts[refusal], ...none };
  const [, , output, dtype, maxAbs, maxRel, unequal, count, nonFinite, type, hull, decades, worst] = run;
  return {
    sizes: texts[sizes], refusal: texts[refusal], output: texts[output], dtype: texts[dtype], maxAbs, maxRel, unequal,
    count, nonFinite, type: texts[type], hull: hull ?? [], decades: decades ?? [], isPlotted: hull !== undefined,
    worst: worst
      ? { index: texts[worst[0]], eager: texts[worst[1]], file: texts[worst[2]], ulp: worst[3], outside: worst[4] }
      : null,
  };
}

// A cell's row begins with its values on the axes, in order: a number, or that of a text.
export const axes: Axis[] = wire.axes.map(([axis, key, numeric], at) => ({
  axis,
  key,
  of: (cell) => (numeric ? String(cell.values[at]) : texts[cell.values[at]]),
  word: (cell) => (numeric ? axis + cell.values[at] : texts[cell.values[at]]),
}));

export const axisNamed = (name: string): Axis => axes.find((one) => one.axis === name) as Axis;

export const cells: Cell[] = wire.cells.map(
  (row, index) => new Cell(index, row.slice(0, axes.length) as number[], row.slice(axes.length) as WireFacts),
);

export const text = (place: number): string => texts[place];
