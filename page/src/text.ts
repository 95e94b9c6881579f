// Numbers and words for people, and text that is safe inside HTML and a shell.

export const escape = (value: unknown): string => String(value).replace(/[&<>"']/g, (x) => `&#${x.charCodeAt(0)};`);

/** An address below or beside the page, whatever the names in it: it always begins with a dot. */
export function relativeAddress(folder: string, name: string): string {
  return escape(encodeURI(`./${folder}/${name}`));
}

export function num(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size < 1e-3 || size >= 1e5 ? value.toExponential(1) : String(+value.toPrecision(3));
}

export function milliseconds(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value < 0.1) return `${Math.round(value * 1000)} µs`;
  return value >= 1000 ? `${num(value / 1000)} s` : `${num(value)} ms`;
}

export function bytes(value: number): string {
  if (value >= 1 << 30) return `${num(value / (1 << 30))} GiB`;
  if (value >= 1 << 20) return `${num(value / (1 << 20))} MiB`;
  return value >= 1024 ? `${num(value / 1024)} KiB` : `${value} B`;
}

export function median(values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

export const unique = <Value>(values: Iterable<Value>): Value[] => [...new Set(values)];

/** A word as it is typed in a shell. */
export const shellWord = (word: string): string =>
  /^[\w.\/=+:@~-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`;

/** A command line with a button that copies it. */
export const commandLine = (line: string): string =>
  `<div class="command"><pre>${escape(line)}</pre>` +
  `<button type="button" data-copy="${escape(line)}" aria-label="Copy: ${escape(line)}">Copy</button></div>`;

export function element<Kind extends HTMLElement = HTMLElement>(id: string): Kind {
  return document.getElementById(id) as Kind;
}
