// Made of page/src by `nox -s page`; sources 83bf1e086da23298c8ff8dbc25934483951956d5fad62f5a69b60ab0c38134c7
"use strict";
(() => {
  // src/text.ts
  var escape = (value) => String(value).replace(/[&<>"']/g, (x) => `&#${x.charCodeAt(0)};`);
  function relativeAddress(folder, name) {
    return escape(encodeURI(`./${folder}/${name}`));
  }
  function num(value) {
    if (value === null || value === void 0) return "–";
    if (value === 0) return "0";
    const size = Math.abs(value);
    return size < 1e-3 || size >= 1e5 ? value.toExponential(1) : String(+value.toPrecision(3));
  }
  function milliseconds(value) {
    if (value === null || value === void 0) return "–";
    if (value < 0.1) return `${Math.round(value * 1e3)} µs`;
    return value >= 1e3 ? `${num(value / 1e3)} s` : `${num(value)} ms`;
  }
  function bytes(value) {
    if (value >= 1 << 30) return `${num(value / (1 << 30))} GiB`;
    if (value >= 1 << 20) return `${num(value / (1 << 20))} MiB`;
    return value >= 1024 ? `${num(value / 1024)} KiB` : `${value} B`;
  }
  function median(values) {
    const sorted = [...values].sort((a, b) => a - b);
    const middle = sorted.length >> 1;
    return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  }
  var unique = (values) => [...new Set(values)];
  var shellWord = (word) => /^[\w.\/=+:@~-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`;
  var commandLine = (line2) => `<div class="command"><pre>${escape(line2)}</pre><button type="button" data-copy="${escape(line2)}" aria-label="Copy: ${escape(line2)}">Copy</button></div>`;
  function element(id) {
    return document.getElementById(id);
  }

  // src/cells.ts
  var wire = JSON.parse(document.getElementById("data")?.textContent ?? "{}");
  var texts = wire.text;
  var verdicts = Object.keys(wire.counts);
  var unexpected = new Set(wire.unexpected);
  var glyphs = {
    pass: "✓",
    fail: "✗",
    skip: "–",
    xfail: "x",
    xpass: "!",
    flaky: "≈",
    missing: "?"
  };
  var Cell = class {
    constructor(index, values, facts) {
      this.index = index;
      this.values = values;
      this.facts = facts;
    }
    index;
    values;
    facts;
    get verdict() {
      return verdicts[this.facts[0]];
    }
    get stage() {
      return texts[this.facts[1]];
    }
    get errorClass() {
      return texts[this.facts[2]];
    }
    get message() {
      return texts[this.facts[3]];
    }
    get maxAbs() {
      return this.facts[4];
    }
    get eager() {
      return this.facts[7];
    }
    get findings() {
      return this.facts[11].map((one) => texts[one]);
    }
    get log() {
      return texts[this.facts[12]];
    }
    get mark() {
      return texts[this.facts[14]];
    }
    get changes() {
      return this.facts[15].map((one) => texts[one]);
    }
    get contract() {
      return this.facts[17].map(([name, asked, got]) => [texts[name], texts[asked], texts[got]]);
    }
    get placed() {
      return this.facts[18].map(([provider, count]) => [texts[provider], count]);
    }
    get float64() {
      return texts[this.facts[19]];
    }
    /** How its random outputs were judged; empty where they are none. */
    get random() {
      return texts[this.facts[20]];
    }
    get latency() {
      const found = this.facts[6];
      if (!found) return null;
      const [median2, p95, low, high, runs, busy] = found;
      return { median: median2, p95, low, high, runs, isBusy: Boolean(busy) };
    }
    get file() {
      const found = this.facts[8];
      return found ? { path: texts[found[0]], sha256: texts[found[1]], bytes: found[2], nodes: found[3] } : null;
    }
    get actions() {
      return this.facts[9].map(([name, cached, seconds]) => ({
        name: texts[name],
        isCached: Boolean(cached),
        seconds
      }));
    }
    get runs() {
      return this.facts[10].map(measured);
    }
    get where() {
      const found = this.facts[13];
      if (!found) return null;
      const [source, node, operator, details, module, blame, bisected] = found.map((one) => texts[one]);
      return { source, node, operator, details, module: module ?? "", blame: blame ?? "", bisected: bisected ?? "" };
    }
    get past() {
      const found = this.facts[16];
      if (!found) return [];
      const [digits, starts, ...series] = found;
      const [latency, error, bytes2, seconds] = series.map((one) => (at) => one.length > 1 ? one[at] : one[0]);
      return texts[starts].split(" ").map((started, at) => ({
        verdict: verdicts[+digits[at]],
        started,
        latency: latency(at),
        error: error(at),
        bytes: bytes2(at),
        seconds: seconds(at)
      }));
    }
    get name() {
      return axes.map((one) => one.word(this)).join("/");
    }
    get isBad() {
      return unexpected.has(this.verdict);
    }
    /** How many times as fast as eager the file is. */
    get speedUp() {
      const { latency, eager } = this;
      return latency && eager ? eager / latency.median : null;
    }
    /** What capture and translation, or a plug-in exporter, took. */
    get exportSeconds() {
      return this.actions.filter((one) => /Capture|Translate|Plugin/.test(one.name)).reduce((sum, one) => sum + one.seconds, 0);
    }
    /** Command lines that say more about a failure. */
    get questions() {
      if (!/^x?fail$/.test(this.verdict) || wire.unasked.includes(this.errorClass)) return [];
      const run = wire.run ? ` --run ${shellWord(wire.run)}` : "";
      const verbs = wire.questions[this.stage] ?? [];
      return verbs.map((verb) => `python -m batch_export ${verb} ${shellWord(this.name)}${run}`);
    }
    /** All of it in a line, for those who hear the page. */
    get description() {
      return [
        `${this.name}: ${this.verdict}${this.stage ? ` at ${this.stage}` : ""}`,
        this.mark,
        this.maxAbs !== null ? `error ${num(this.maxAbs)}` : "",
        this.random ? "judged by distribution" : "",
        this.latency ? milliseconds(this.latency.median) : ""
      ].filter(Boolean).join(", ");
    }
  };
  function measured(run) {
    const [sizes, refusal] = run;
    const none = {
      output: "",
      dtype: "",
      maxAbs: null,
      maxRel: null,
      unequal: 0,
      count: 0,
      nonFinite: 0,
      type: "",
      hull: [],
      decades: [],
      worst: null,
      isPlotted: false
    };
    if (run.length === 2) return { sizes: texts[sizes], refusal: texts[refusal], ...none };
    const [, , output, dtype, maxAbs, maxRel, unequal, count, nonFinite, type, hull2, decades, worst] = run;
    return {
      sizes: texts[sizes],
      refusal: texts[refusal],
      output: texts[output],
      dtype: texts[dtype],
      maxAbs,
      maxRel,
      unequal,
      count,
      nonFinite,
      type: texts[type],
      hull: hull2 ?? [],
      decades: decades ?? [],
      isPlotted: hull2 !== void 0,
      worst: worst ? { index: texts[worst[0]], eager: texts[worst[1]], file: texts[worst[2]], ulp: worst[3], outside: worst[4] } : null
    };
  }
  var axes = wire.axes.map(([axis, key, numeric], at) => ({
    axis,
    key,
    of: (cell) => numeric ? String(cell.values[at]) : texts[cell.values[at]],
    word: (cell) => numeric ? axis + cell.values[at] : texts[cell.values[at]]
  }));
  var axisNamed = (name) => axes.find((one) => one.axis === name);
  var cells = wire.cells.map(
    (row2, index) => new Cell(index, row2.slice(0, axes.length), row2.slice(axes.length))
  );
  var text = (place2) => texts[place2];

  // src/causes.ts
  var MOST_CHIPS = 12;
  var MOST_CAUSES = 8;
  var MOST_CHANGES = 15;
  function showCauses() {
    if (!wire.clusters.length) return;
    const section = element("clusters");
    section.hidden = false;
    const items = wire.clusters.map(cause);
    section.querySelector("ol").innerHTML = items.slice(0, MOST_CAUSES).join("");
    const rest = items.slice(MOST_CAUSES);
    if (!rest.length) return;
    const folded = `<details><summary>${rest.length} more causes</summary><ol>${rest.join("")}</ol></details>`;
    section.insertAdjacentHTML("beforeend", folded);
  }
  function cause([verdict, title, kind, why, numbers, since, fresh]) {
    const own = numbers.map((index) => cells[index]);
    const model3 = axisNamed("model"), exporter = axisNamed("exporter");
    const severalModels = unique(own.map(model3.of)).length > 1;
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
      "</li>"
    ].join("");
  }
  function chip(cell, severalModels, severalExporters) {
    const words = [
      severalModels ? `${escape(axisNamed("model").of(cell))} ` : "",
      `opset ${axisNamed("opset").of(cell)} ${escape(axisNamed("dynamic").of(cell))}`,
      severalExporters ? ` ${escape(axisNamed("exporter").of(cell))}` : "",
      cell.mark ? ` · ${cell.mark}` : ""
    ];
    return `<button type="button" data-open="${cell.index}" aria-label="Open ${escape(cell.name)}">${words.join("")}</button>`;
  }
  function place(cell) {
    const where = cell.where;
    if (!where) return "";
    return [where.operator, where.node, where.source].filter(Boolean).map((one) => `<code>${escape(one)}</code>`).join(" · ");
  }
  function showChanges() {
    if (!wire.changes.length && !wire.contended) return;
    const section = element("changes");
    section.hidden = false;
    const note = wire.contended ? `<p class="note">${escape(wire.contended)}.</p>` : "";
    const parts = Object.entries(wire.titles).map(([kind, title]) => changesOf(kind, title));
    section.querySelector("div").innerHTML = note + parts.join("");
  }
  function changesOf(kind, title) {
    const own = wire.changes.filter((change2) => change2[0] === kind);
    if (!own.length) return "";
    const list2 = (part2) => `<ul>${part2.map(change).join("")}</ul>`;
    if (kind === "still") return `<details><summary>${title} (${own.length})</summary>${list2(own)}</details>`;
    const rest = own.slice(MOST_CHANGES);
    const folded = rest.length ? `<details><summary>${rest.length} more</summary>${list2(rest)}</details>` : "";
    const decides = kind === "busy" && wire.decides ? `<p class="note">What decides:</p>${commandLine(wire.decides)}` : "";
    return `<h3>${title} (${own.length})</h3>${decides}${list2(own.slice(0, MOST_CHANGES))}${folded}`;
  }
  function change([, cell, index, said]) {
    const named = `<code>${escape(cell)}</code>`;
    return `<li>${index < 0 ? named : `<a href="#cell=${escape(cell)}">${named}</a>`} ${escape(text(said))}</li>`;
  }

  // src/shades.ts
  var fastest = /* @__PURE__ */ new Map();
  var model = axisNamed("model");
  for (const cell of cells) {
    const latency = cell.latency;
    if (latency) fastest.set(model.of(cell), Math.min(latency.median, fastest.get(model.of(cell)) ?? Infinity));
  }
  var short = (value) => value === 0 ? "0" : value.toExponential(0).replace("e+", "e");
  var shades = {
    error: {
      label: (cell) => short(cell.maxAbs ?? 0),
      value: ({ maxAbs }) => maxAbs === null ? null : maxAbs === 0 ? 0 : (Math.log10(maxAbs) + 9) / 8,
      hue: 32,
      legend: "Largest absolute difference from eager; the darker, the larger (1e-9 to 0.1). "
    },
    latency: {
      label: ({ latency }) => latency ? `${latency.isBusy ? "~" : ""}${milliseconds(latency.median).replace(" ", "")}` : "",
      value: (cell) => cell.latency ? Math.log2(cell.latency.median / (fastest.get(model.of(cell)) ?? 1)) / 2 : null,
      hue: 205,
      legend: "Median time of one inference; the darker, the slower beside the model's fastest cell (up to 4 times). ~ busy machine. "
    },
    speed: {
      label: ({ speedUp }) => `${num(+(speedUp ?? 0).toPrecision(2))}x`,
      value: ({ speedUp }) => speedUp === null ? null : (Math.log2(speedUp) + 1) / 5,
      hue: 205,
      legend: "Eager's time over the file's; the darker, the faster (0.5 to 16 times). "
    }
  };
  function legend(shade) {
    if (shades[shade]) return shades[shade].legend;
    const shown = verdicts.filter((verdict) => wire.counts[verdict]);
    return shown.map((verdict) => `<span class="v-${verdict}">${glyphs[verdict]} ${verdict}</span>`).join("");
  }
  function square(cell, shade) {
    if (!cell) return `<td class="empty"></td>`;
    const verdict = cell.verdict;
    const star = cell.random && /^(x?pass|flaky)$/.test(verdict) ? "*" : "";
    const rest = `data-m="${cell.mark}"`, said = `aria-label="${escape(cell.description)}"`;
    const value = shades[shade]?.value(cell) ?? null;
    if (value === null || verdict !== "pass" && verdict !== "xpass")
      return `<td data-i="${cell.index}" tabindex="-1" class="v-${verdict}" ${rest} ${said}>${glyphs[verdict]}${star}</td>`;
    const dark = Math.max(0, Math.min(1, value));
    const light = shade === "speed" ? 50 + 42 * (1 - dark) : 92 - 42 * dark;
    const colour = `style="background:hsl(${shades[shade].hue} 75% ${light}%)"`;
    return `<td data-i="${cell.index}" tabindex="-1" class="heat" ${rest} ${colour} ${said}>${shades[shade].label(cell)}${star}</td>`;
  }

  // src/matrix.ts
  var MANY_ROWS = 60;
  var MANY_CELLS = 2e3;
  var PAUSE_MS = 120;
  var SEPARATOR = "\0";
  var model2 = axisNamed("model");
  var dynamic = axisNamed("dynamic");
  var opset = axisNamed("opset");
  var filtered = axes.slice(1);
  var dynamics = unique(cells.map(dynamic.of));
  var parted = [
    axisNamed("exporter"),
    axisNamed("provider"),
    ...filtered.filter((one) => !["dynamic", "opset", "provider", "exporter"].includes(one.axis))
  ];
  var areSeveral = parted.map((one) => unique(cells.map(one.of)).length > 1);
  function columnKey(cell) {
    const order = String(dynamics.indexOf(dynamic.of(cell))).padStart(3, "0");
    return [...parted.map((one) => one.of(cell)), order, opset.of(cell).padStart(3, "0")].join(SEPARATOR);
  }
  var keys = unique(cells.map(columnKey)).sort();
  var columnOf = new Map(keys.map((key, at) => [key, at]));
  var rows = /* @__PURE__ */ new Map();
  for (const cell of cells) {
    const own = rows.get(model2.of(cell)) ?? Array(keys.length).fill(null);
    own[columnOf.get(columnKey(cell))] = cell;
    rows.set(model2.of(cell), own);
  }
  var opsetOf = (key) => Number(key.split(SEPARATOR).at(-1));
  function groupOf(key) {
    const words = key.split(SEPARATOR);
    const parts = parted.map((_, at) => areSeveral[at] ? words[at] : "");
    return [...parts, dynamics[Number(words.at(-2))]].filter(Boolean).join(" · ");
  }
  var chosen = (id) => element(id).value;
  function fillFilters() {
    const option = (value) => `<option>${escape(value)}</option>`;
    for (const one of filtered) {
      const values = unique(cells.map(one.of));
      if (one.axis === "opset") values.sort((a, b) => Number(a) - Number(b));
      const select = element(`f-${one.axis}`);
      select.insertAdjacentHTML("beforeend", values.map(option).join(""));
      const label2 = select.parentElement;
      if (values.length < 2) {
        label2.hidden = true;
        label2.style.display = "none";
      }
    }
    const marks = [["new", "new failures"], ["still", "still failing"], ["fixed", "fixed"]];
    const against = marks.map(([mark, words]) => `<option value='mark:${mark}'>${words}</option>`);
    element("f-verdict").insertAdjacentHTML("beforeend", [
      `<option value="bad">unexpected</option>`,
      ...verdicts.filter((verdict) => wire.counts[verdict]).map(option),
      ...cells.some((cell) => cell.mark) ? against : []
    ].join(""));
  }
  var isOnAxes = (cell) => filtered.every((one) => !chosen(`f-${one.axis}`) || one.of(cell) === chosen(`f-${one.axis}`));
  function isMatch(cell, verdict, query) {
    if (verdict === "bad" && !unexpected.has(cell.verdict)) return false;
    if (verdict.startsWith("mark:") && cell.mark !== verdict.slice("mark:".length)) return false;
    if (verdict && verdict !== "bad" && !verdict.startsWith("mark:") && cell.verdict !== verdict) return false;
    if (!query) return true;
    return `${cell.name} ${cell.stage} ${cell.errorClass} ${cell.message}`.toLowerCase().includes(query);
  }
  function ordered(found, isShown) {
    const most = (of) => ([, own]) => Math.max(-Infinity, ...own.filter((cell) => cell !== null).filter(isShown).map(of));
    const ranks = {
      bad: ([, own]) => own.filter((cell) => cell?.isBad).length,
      latency: most((cell) => cell.latency?.median ?? -1),
      error: most((cell) => cell.maxAbs ?? -1)
    };
    const rank = ranks[chosen("sort")];
    return found.sort((a, b) => (rank ? rank(b) - rank(a) : 0) || (a[0] < b[0] ? -1 : 1));
  }
  function head(shown) {
    const groups = [];
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
    return `<thead><tr><th class="corner" scope="col" rowspan="2">model</th>${wide.join("")}</tr><tr>${narrow.join("")}</tr></thead>`;
  }
  function draw() {
    const query = element("q").value.trim().toLowerCase(), verdict = chosen("f-verdict");
    const shade = chosen("shade");
    const onAxes = cells.map(isOnAxes);
    const matching = cells.map((cell, at) => onAxes[at] && isMatch(cell, verdict, query));
    const isShown = (cell) => matching[cell.index];
    const visible = unique(cells.filter((_, at) => onAxes[at]).map((cell) => columnOf.get(columnKey(cell))));
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
    if (query || verdict) {
      for (const at of grid.querySelectorAll("td[data-i]"))
        if (!matching[Number(at.dataset.i)]) at.classList.add("dim");
    }
    const first = grid.querySelector("td[data-i]:not(.dim)");
    if (first) first.tabIndex = 0;
    element("shown").textContent = `${matching.filter(Boolean).length} of ${cells.length} cells, ${order.length} model${order.length === 1 ? "" : "s"}`;
  }
  function listenToFilters() {
    let waiting = 0;
    const form = element("filters");
    form.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = window.setTimeout(draw, cells.length > MANY_CELLS ? PAUSE_MS : 0);
    });
    form.addEventListener("reset", () => window.setTimeout(draw));
    form.addEventListener("submit", (event) => event.preventDefault());
  }

  // src/figures.ts
  var MOST_BARS = 15;
  var DECADES = 14;
  var WIDE_SPAN = 20;
  var LONGEST_NAME = 20;
  var fixed = (value) => value.toFixed(1);
  var line = (x1, y1, x2, y2, kind) => `<line x1="${fixed(x1)}" y1="${fixed(y1)}" x2="${fixed(x2)}" y2="${fixed(y2)}" class="${kind}"/>`;
  var label = (x, y, text2, anchor = "start", kind = "") => `<text x="${fixed(x)}" y="${fixed(y)}" text-anchor="${anchor}" class="${kind}">${escape(text2)}</text>`;
  var curve = (points, kind) => `<polyline class="${kind}" points="${points.map(([x, y]) => `${fixed(x)},${fixed(y)}`).join(" ")}"/>`;
  function figure(caption, width, height, inner, said = caption) {
    const drawing = `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${escape(said)}">${inner}</svg>`;
    return `<figure><figcaption>${caption}</figcaption>${drawing}</figure>`;
  }
  function histogram(run) {
    const decades = run.decades;
    const last = decades.at(-1);
    if (!last) return "";
    const floor = last[0] - DECADES;
    const merged = /* @__PURE__ */ new Map();
    for (const [decade, count2] of decades) {
      const shown = Math.max(decade, floor);
      merged.set(shown, (merged.get(shown) ?? 0) + count2);
    }
    const bins = [...merged];
    const low = bins[0][0], count = last[0] - low + 1;
    const most = Math.max(...bins.map((bin) => bin[1])), width = Math.min(60, 620 / count);
    const says = (decade) => decade === floor && decades[0][0] < floor ? `≤1e${decade}` : `1e${decade}`;
    const bars2 = bins.map(([decade, elements]) => {
      const height = 70 * Math.log1p(elements) / Math.log1p(most), x = 40 + (decade - low) * width;
      return [
        `<rect class="bar" x="${x + 1}" y="${88 - height}" width="${width - 2}" height="${height}">`,
        `<title>${says(decade)}: ${elements}</title></rect>`,
        label(x + width / 2, 84 - height, elements, "middle", "soft"),
        label(x + width / 2, 103, says(decade), "middle", "soft")
      ].join("");
    });
    const said = `Error histogram: ${bins.map(([decade, elements]) => `${elements} elements about 1e${decade}`).join(", ")}`;
    return figure("Elements by size of their error", 700, 110, bars2.join("") + line(40, 88, 690, 88, "axis"), said);
  }
  function hull(run) {
    const points = run.hull.filter(([x, y]) => x > 0 && y > 0);
    if (points.length < 2) return "";
    const tolerance = wire.tolerances[run.dtype];
    const bound = (x) => tolerance ? Math.log10(tolerance[0] + tolerance[1] * 10 ** x) : 0;
    const xs = points.map((point) => Math.log10(point[0])), ys = points.map((point) => Math.log10(point[1]));
    const x0 = Math.min(...xs), x1 = Math.max(...xs) + 1e-9;
    const all = tolerance ? [...ys, bound(x0), bound(x1)] : ys;
    const y0 = Math.floor(Math.min(...all)), y1 = Math.ceil(Math.max(...all));
    const toX = (x) => 70 + 610 * (x - x0) / (x1 - x0);
    const toY = (y) => 150 - 135 * (y - y0) / (y1 - y0 || 1);
    const parts = [
      line(70, 150, 690, 150, "axis"),
      line(70, 12, 70, 150, "axis"),
      label(64, 20, `1e${y1}`, "end", "soft"),
      label(64, 150, `1e${y0}`, "end", "soft"),
      label(70, 168, `|value| ${num(10 ** x0)}`, "start", "soft"),
      label(690, 168, num(10 ** x1), "end", "soft"),
      curve(points.map((_, at) => [toX(xs[at]), toY(ys[at])]), "curve")
    ];
    if (tolerance) {
      const steps = Array.from({ length: 21 }, (_, at) => x0 + (x1 - x0) * at / 20);
      parts.push(curve(steps.map((x) => [toX(x), toY(bound(x))]), "tol"));
      parts.push(label(76, Math.max(12, toY(bound(x0)) - 5), "tolerance", "start", "soft"));
    }
    const beside = tolerance ? `, tolerance ${tolerance[0]} + ${tolerance[1]} of the value` : "";
    const said = `Hull of the errors from ${num(points[0][1])} to ${num(points.at(-1)?.[1])}${beside}`;
    return figure("Largest error by size of the value", 700, 178, parts.join(""), said);
  }
  function latencyFigure(latency, eager) {
    const { median: middle, p95, low, high } = latency;
    const most = Math.max(p95, eager ?? 0) * 1.05;
    const toX = (value) => 70 + 540 * value / most;
    const bar = (y, value, kind, name) => [
      label(64, y + 13, name, "end"),
      `<rect x="70" y="${y}" width="${fixed(toX(value) - 70)}" height="18" class="${kind}"/>`,
      label(toX(value) + 6, y + 13, milliseconds(value))
    ].join("");
    const inner = [
      eager ? bar(4, eager, "bar2", "eager") : "",
      bar(32, middle, "bar", "ONNX"),
      line(toX(low), 28, toX(low), 54, "mark"),
      line(toX(high), 28, toX(high), 54, "mark"),
      line(toX(low), 41, toX(high), 41, "mark"),
      line(toX(p95), 36, toX(p95), 46, "axis")
    ];
    const beside = eager ? `; eager ${milliseconds(eager)}, ${num(eager / middle)} times as long` : "";
    const said = [
      `Median ${milliseconds(middle)}, 95 % interval ${milliseconds(low)} to ${milliseconds(high)}, `,
      `p95 ${milliseconds(p95)}, ${latency.runs} runs${beside}${latency.isBusy ? "; the machine was busy" : ""}`
    ].join("");
    return `${figure("Median and its 95 % interval", 700, 60, inner.join(""), said)}<p class="note">${said}</p>`;
  }
  function outcomes(past) {
    const dots = past.map((one, at) => {
      const kind = unexpected.has(one.verdict) ? "dot bad" : "dot";
      const x = 10 + 660 * at / Math.max(1, past.length - 1);
      return `<circle cx="${fixed(x)}" cy="8" r="5" class="${kind}"><title>${escape(one.started)} ${one.verdict}</title></circle>`;
    });
    const bad = past.filter((one) => unexpected.has(one.verdict)).length;
    return figure(`Last ${past.length} runs: ${bad ? `${bad} bad` : "all good"}`, 680, 16, dots.join(""));
  }
  var QUANTITIES = [
    ["error", "Largest error", num],
    ["latency", "Latency", milliseconds],
    ["seconds", "Capture and translation", (value) => `${num(value)} s`],
    ["bytes", "File size", bytes]
  ];
  function trends(past) {
    const curves = QUANTITIES.map(([quantity, name, text2]) => {
      const known = past.flatMap((one, at) => {
        const value = one[quantity];
        return value === null ? [] : [[at, value]];
      });
      const last = known.at(-1);
      if (!last) return "";
      const values = known.map(([, value]) => value), low = Math.min(...values), high = Math.max(...values);
      const toX = (at) => 6 + 198 * at / Math.max(1, past.length - 1);
      const toY = (value) => high > low ? 38 - 32 * (value - low) / (high - low) : 22;
      const dots = known.map(([at, value]) => `<circle cx="${fixed(toX(at))}" cy="${fixed(toY(value))}" r="2.5" class="dot"><title>${escape(past[at].started)} ${text2(value)}</title></circle>`);
      const points = known.map(([at, value]) => [toX(at), toY(value)]);
      const span = high > low ? `${text2(last[1])} (${text2(low)} to ${text2(high)})` : `${text2(last[1])}, always`;
      return figure(`${name}: ${span}`, 210, 44, line(0, 43, 210, 43, "axis") + curve(points, "curve") + dots.join(""));
    });
    return curves.some(Boolean) ? `<div class="trends">${curves.join("")}</div>` : "";
  }
  function together(pasts) {
    const byStart = /* @__PURE__ */ new Map();
    for (const one of pasts.flat()) byStart.set(one.started, [...byStart.get(one.started) ?? [], one]);
    return [...byStart].sort(([one], [other]) => one < other ? -1 : 1).map(([started, own]) => {
      const middle = (quantity) => {
        const known = own.flatMap((one) => one[quantity] ?? []);
        return known.length ? median(known) : null;
      };
      const { verdict } = own.find((one) => unexpected.has(one.verdict)) ?? own[0];
      return {
        verdict,
        started,
        latency: middle("latency"),
        error: middle("error"),
        bytes: middle("bytes"),
        seconds: middle("seconds")
      };
    });
  }
  function bars(title, values, text2) {
    const top = values.filter((pair) => pair[1] > 0).sort((a, b) => b[1] - a[1]).slice(0, MOST_BARS);
    const last = top.at(-1);
    if (!last) return "";
    const most = top[0][1], least = last[1], step = 20;
    const isWide = most / least > WIDE_SPAN;
    const length = (value) => 190 * (isWide ? Math.log(2 * value / least) / Math.log(2 * most / least) : value / most);
    const heading = isWide ? `${title} (logarithmic)` : title;
    const inner = top.map(([name, value], at) => {
      const short2 = name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 1)}…` : name;
      return [
        label(150, at * step + 14, short2, "end"),
        `<rect class="bar" x="156" y="${at * step + 3}" width="${fixed(length(value))}" height="14"/>`,
        label(162 + length(value), at * step + 14, text2(value), "start", "soft")
      ].join("");
    });
    const said = `${heading}: ${top.map(([name, value]) => `${name} ${text2(value)}`).join(", ")}`;
    return figure(heading, 430, top.length * step + 4, inner.join(""), said);
  }
  function showPlots() {
    const byModel = (of) => [...rows].map(([model3, own]) => {
      const values = own.flatMap((cell) => cell ? [of(cell) ?? 0] : []).filter((value) => value > 0);
      return [model3, values.length ? median(values) : 0];
    });
    if (!cells.length) return;
    element("plots").innerHTML = [
      bars("Latency, median", byModel((cell) => cell.latency?.median ?? null), milliseconds),
      bars("Speed-up over eager, median", byModel((cell) => cell.speedUp), (value) => `${num(value)}x`),
      bars("File size", byModel((cell) => cell.file?.bytes ?? null), bytes),
      bars("Seconds of capture and translation", byModel((cell) => cell.exportSeconds), (value) => `${num(value)} s`)
    ].join("");
  }

  // src/cell_page.ts
  function table(headings, lines) {
    const cells2 = headings.map((one) => one.startsWith(">") ? `<th scope="col" class="n">${one.slice(1)}</th>` : `<th scope="col">${one}</th>`);
    const head2 = cells2.length ? `<thead><tr>${cells2.join("")}</tr></thead>` : "";
    return `<table class="facts">${head2}<tbody>${lines.join("")}</tbody></table>`;
  }
  var part = (title, html) => html ? `<h3>${title}</h3>${html}` : "";
  var row = (name, html) => `<tr><th scope="row">${name}</th><td>${html}</td></tr>`;
  var list = (lines) => lines.length ? `<ul>${lines.map((line2) => `<li>${escape(line2)}</li>`).join("")}</ul>` : "";
  function cellPage(cell) {
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
      part("History", history2(cell)),
      part("File", file(cell)),
      cell.log && wire.logs ? `<p><a href="${relativeAddress(wire.logs, cell.log)}">Log</a></p>` : ""
    ].join("");
  }
  function outcome(cell) {
    const at = cell.stage ? ` at ${escape(cell.stage)}` : "";
    const mark = cell.mark ? `<span class="tag">${escape(cell.mark)}</span>` : "";
    const kind = cell.errorClass ? `<code>${escape(cell.errorClass)}</code>` : "";
    return `<p><span class="tag v-${cell.verdict}">${cell.verdict}${at}</span>${mark}${kind}</p>`;
  }
  function firstWrong(cell) {
    const where = cell.where;
    if (!where) return "";
    const code = (value) => value ? `<code>${escape(value)}</code>` : "";
    const lines = [
      ["Source", code(where.source)],
      ["Node", code(where.node)],
      ["Operator", code(where.operator)],
      ["Module", code(where.module)],
      ["To blame", escape(where.blame)],
      ["Bisect says", escape(where.bisected)]
    ];
    const known = lines.filter(([, value]) => value);
    return known.length ? table([], known.map(([name, value]) => row(name, value))) : "";
  }
  function stages(cell) {
    const lines = cell.actions.map(({ name, isCached, seconds }) => `<tr><td>${escape(name)}</td><td>${isCached ? "from the cache" : "ran"}</td><td class="n">${num(seconds)}</td></tr>`);
    return lines.length ? table(["stage", "origin", ">seconds"], lines) : "";
  }
  function contract(cell) {
    const lines = cell.contract.map(([name, asked, got]) => `<tr><th scope="row">${escape(name)}</th><td><code>${escape(asked) || "any"}</code></td><td><code>${escape(got)}</code></td></tr>`);
    return lines.length ? table(["what", "requested", "in the file"], lines) : "";
  }
  function errors(cell) {
    const runs = cell.runs;
    if (!runs.length) return "";
    const plotted = runs.find((run) => run.isPlotted);
    const precise = cell.float64 ? `<p class="note">Eager in float64: ${escape(cell.float64)}.</p>` : "";
    return [
      table(["sizes", "worst output", ">max abs", ">max rel", ">unequal"], runs.map(runLine)),
      plotted ? worstElement(plotted) : "",
      precise,
      plotted ? histogram(plotted) + hull(plotted) : ""
    ].join("");
  }
  function runLine(run) {
    if (!run.output) return `<tr><td>${escape(run.sizes)}</td><td colspan="4">${escape(run.refusal)}</td></tr>`;
    const nonFinite = run.nonFinite ? `, ${run.nonFinite} NaN or Inf` : "";
    return [
      `<tr><td>${escape(run.sizes)}</td><td>${escape(run.output)} <span class="note">${escape(run.type)}</span></td>`,
      `<td class="n">${num(run.maxAbs)}</td><td class="n">${num(run.maxRel)}</td>`,
      `<td class="n">${run.unequal} / ${run.count}${nonFinite}</td></tr>`
    ].join("");
  }
  function worstElement(run) {
    const worst = run.worst;
    if (!worst) return "";
    const apart = worst.ulp === null ? "" : `, ${num(worst.ulp)} units in the last place apart`;
    return `<p class="note" id="worst">Worst element <code>${escape(run.output + worst.index)}</code>: eager <code>${escape(worst.eager)}</code>, file <code>${escape(worst.file)}</code>${apart}; ${worst.outside} of ${run.count} elements beyond the default tolerance of ${escape(run.dtype)}.</p>`;
  }
  function history2(cell) {
    const past = cell.past;
    if (past.length < 2) return "";
    const model3 = axisNamed("model"), name = model3.of(cell);
    const own = cells.filter((one) => model3.of(one) === name && one.past.length > 1);
    const all = own.length > 1 ? `<details><summary>Median of the ${own.length} cells of ${escape(name)}</summary>${trends(together(own.map((one) => one.past)))}</details>` : "";
    return outcomes(past) + trends(past) + all;
  }
  function file(cell) {
    const found = cell.file;
    if (!found) return "";
    const placed = cell.placed.map(([provider, count]) => `${escape(provider)} ${count}`).join(", ") || "–";
    const facts = table([], [
      row("Size", bytes(found.bytes)),
      row("Nodes", found.nodes),
      row("sha256", `<code>${found.sha256}…</code>`),
      row("Placed on", placed)
    ]);
    if (!wire.artifacts) return facts;
    const named = axes.filter((axis) => !["provider", "exporter"].includes(axis.axis)).map((axis) => axis.word(cell));
    const saved = escape(`${named.join("-")}.onnx`);
    const link = `<a href="${relativeAddress(wire.artifacts, found.path)}" download="${saved}">ONNX file</a>`;
    const look = `<code>netron ${escape(`${wire.artifacts}/${found.path}`)}</code>`;
    return `${facts}<p>${link} (external data, if any, lies beside it; to look at it: ${look})</p>`;
  }

  // src/drawer.ts
  var ADDRESS = "#cell=";
  var opener = null;
  var dialog = () => element("cell");
  var isOpen = () => dialog().open;
  function closeCell() {
    dialog().close();
  }
  function openCell(index) {
    opener = document.activeElement;
    const cell = cells[index];
    element("cell-body").innerHTML = cellPage(cell);
    history.replaceState(null, "", `${ADDRESS}${encodeURIComponent(cell.name)}`);
    if (!dialog().open) dialog().showModal();
    dialog().scrollTop = 0;
  }
  function openFromAddress() {
    if (!location.hash.startsWith(ADDRESS)) return;
    const wanted = decodeURIComponent(location.hash.slice(ADDRESS.length));
    const found = cells.find((cell) => cell.name === wanted);
    if (found) openCell(found.index);
  }
  function listenToDrawer() {
    dialog().addEventListener("close", () => {
      history.replaceState(null, "", location.pathname + location.search);
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    });
    addEventListener("hashchange", openFromAddress);
  }

  // src/keys.ts
  var STEPS = {
    ArrowLeft: [-1, 0],
    ArrowRight: [1, 0],
    ArrowUp: [0, -1],
    ArrowDown: [0, 1]
  };
  var SQUARE = "td[data-i]";
  function focus(from, to) {
    if (!to) return;
    from.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
    to.scrollIntoView({ block: "nearest", inline: "nearest" });
  }
  function next(from, dx, dy) {
    let row2 = from.parentElement;
    let column = [...row2?.children ?? []].indexOf(from);
    for (; ; ) {
      column += dx;
      if (dy && row2) row2 = dy > 0 ? row2.nextElementSibling : row2.previousElementSibling;
      const to = row2?.children[column];
      if (!(to instanceof HTMLTableCellElement) || to.tagName !== "TD") return void 0;
      if (to.dataset.i !== void 0) return to;
    }
  }
  function keyInMatrix(event) {
    const at = event.target.closest(SQUARE);
    if (!at) return;
    const step = STEPS[event.key];
    const row2 = [...at.parentElement?.querySelectorAll(SQUARE) ?? []];
    if (step) focus(at, next(at, ...step));
    else if (event.key === "Enter" || event.key === " ") openCell(Number(at.dataset.i));
    else if (event.key === "Home") focus(at, row2[0]);
    else if (event.key === "End") focus(at, row2.at(-1));
    else return;
    event.preventDefault();
  }
  function click(event) {
    const target = event.target;
    const opener2 = target.closest("[data-open]"), square2 = target.closest(`#grid ${SQUARE}`);
    if (opener2) openCell(Number(opener2.dataset.open));
    else if (square2) openCell(Number(square2.dataset.i));
    else if (target === element("cell") || target.closest("[data-close]")) closeCell();
    const copy = target.closest("[data-copy]");
    if (!copy || !navigator.clipboard) return;
    void navigator.clipboard.writeText(copy.dataset.copy ?? "").then(() => {
      copy.textContent = "Copied";
    });
  }
  function listenToKeys() {
    element("grid").addEventListener("keydown", keyInMatrix);
    document.addEventListener("click", click);
    document.addEventListener("keydown", (event) => {
      const isTyping = /INPUT|SELECT|TEXTAREA/.test(event.target.tagName);
      if (event.key !== "/" || isTyping || isOpen()) return;
      event.preventDefault();
      element("q").focus();
    });
  }

  // src/main.ts
  function arrange() {
    const narrow = matchMedia("(max-width: 600px)");
    const matrix = element("matrix"), after = matrix.nextElementSibling;
    const place2 = () => {
      if (narrow.matches) after.parentElement?.prepend(matrix);
      else after.before(matrix);
    };
    narrow.addEventListener("change", place2);
    place2();
  }
  arrange();
  showCauses();
  showChanges();
  fillFilters();
  listenToFilters();
  listenToKeys();
  listenToDrawer();
  addEventListener("beforeprint", () => {
    for (const part2 of document.querySelectorAll("#clusters details, .about")) part2.open = true;
  });
  draw();
  openFromAddress();
  (window.requestIdleCallback ?? setTimeout)(() => showPlots());
  document.documentElement.dataset.ready = "1";
})();
