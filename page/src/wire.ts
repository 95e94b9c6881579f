// The data as it lies in the page: short rows, every text once. `report/html_data.py` writes it; `cells.ts` reads it.

/** A place in the table of texts. */
export type TextNumber = number;
export type Maybe = number | null;

/** Sizes and what refused to run at them; or sizes, refusal, output, dtype, errors, counts, type, and of the run that is plotted the rest. */
export type WireRun =
  | [sizes: TextNumber, refusal: TextNumber]
  | [
      sizes: TextNumber, refusal: TextNumber, output: TextNumber, dtype: TextNumber, maxAbs: Maybe, maxRel: Maybe,
      unequal: number, count: number, nonFinite: number, type: TextNumber,
      hull?: [size: number, error: number][], decades?: [decade: number, count: number][],
      worst?: 0 | [index: TextNumber, eager: TextNumber, file: TextNumber, ulp: Maybe, outside: number],
    ];

export type WireLatency = [median: number, p95: number, low: number, high: number, runs: number, busy: number];
export type WireFile = [path: TextNumber, sha256: TextNumber, bytes: number, nodes: number];
export type WireAction = [name: TextNumber, cached: number, seconds: number];
/** Each list has a value for every run, or a single one where all are alike. */
export type WirePast = [
  verdicts: string, starts: TextNumber, latencies: Maybe[], errors: Maybe[], bytes: Maybe[], seconds: Maybe[],
];

/** What follows a cell's values on the axes. */
export type WireFacts = [
  verdict: number, stage: TextNumber, errorClass: TextNumber, message: TextNumber, maxAbs: Maybe, maxRel: Maybe,
  latency: 0 | WireLatency, eager: Maybe, file: 0 | WireFile, actions: WireAction[], runs: WireRun[],
  findings: TextNumber[], log: TextNumber, where: 0 | TextNumber[], mark: TextNumber, changes: TextNumber[],
  past: 0 | WirePast, contract: [TextNumber, TextNumber, TextNumber][], placed: [TextNumber, number][],
  float64: TextNumber, random: TextNumber,
];

export interface Wire {
  text: string[];
  axes: [axis: string, key: string, numeric: number][];
  counts: Record<string, number>;
  unexpected: string[];
  titles: Record<string, string>;
  contended: string;
  /** The command that decides what was measured on a busy machine; empty where nothing was. */
  decides: string;
  artifacts: string;
  logs: string;
  tolerances: Record<string, [atol: number, rtol: number]>;
  repro: string;
  run: string;
  questions: Record<string, string[]>;
  unasked: string[];
  changes: [kind: string, cell: string, index: number, text: TextNumber][];
  clusters: [
    verdict: TextNumber, title: TextNumber, kind: TextNumber, cause: TextNumber, cells: number[], since: TextNumber,
    fresh: number,
  ][];
  cells: (number | WireFacts[number])[][];
}
