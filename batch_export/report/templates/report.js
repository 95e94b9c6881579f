"use strict";
// Reads the report's data, draws the matrix, the clusters and one cell at a time. No library, no network.
(() => {
  const D = JSON.parse(document.getElementById("data").textContent);
  const T = D.text, VERDICTS = Object.keys(D.counts), BAD = new Set(D.unexpected);
  const GLYPH = { pass: "✓", fail: "✗", skip: "–", xfail: "x", xpass: "!", flaky: "≈", missing: "?" };
  // A cell's row begins with its values on the axes, in order: a number, or that of a text.
  const AXES = D.axes.map(([axis, key, numeric], i) => ({ axis, key, of: (c) => (numeric ? String(c[i]) : T[c[i]]), word: (c) => (numeric ? axis + c[i] : T[c[i]]) }));
  const [VERDICT, STAGE, CLASS, MSG, ABS, REL, LAT, EAGER, ONNX, ACTIONS, RUNS, FINDINGS, LOG, WHERE, MARK, CHANGES, PAST,
    CONTRACT, PLACED, FLOAT64, RANDOM] = Array.from({ length: 21 }, (_, i) => AXES.length + i);
  const axes = (...names) => AXES.filter((a) => names.includes(a.axis)), axis = (name) => axes(name)[0].of;
  const MODEL = axis("model"), DYN = axis("dynamic"), OPSET = axis("opset"), EXPORTER = axis("exporter");
  const C = D.cells, $ = (id) => document.getElementById(id);
  const verdict = (c) => VERDICTS[c[VERDICT]];
  const name = (c) => AXES.map((a) => a.word(c)).join("/");
  const ratio = (c) => (c[LAT] && c[EAGER] ? c[EAGER] / c[LAT][0] : null);
  const seconds = (c) => c[ACTIONS].filter((a) => /Capture|Translate|Plugin/.test(T[a[0]])).reduce((s, a) => s + a[2], 0);
  const esc = (s) => String(s).replace(/[&<>"']/g, (x) => `&#${x.charCodeAt(0)};`);
  const num = (v) => (v === null || v === undefined ? "–" : v === 0 ? "0" : Math.abs(v) < 1e-3 || Math.abs(v) >= 1e5 ? v.toExponential(1) : String(+v.toPrecision(3)));
  const ms = (v) => (v === null || v === undefined ? "–" : v < 0.1 ? `${Math.round(v * 1000)} µs` : v >= 1000 ? `${num(v / 1000)} s` : `${num(v)} ms`);
  const size = (b) => (b >= 1 << 30 ? `${num(b / (1 << 30))} GiB` : b >= 1 << 20 ? `${num(b / (1 << 20))} MiB` : b >= 1024 ? `${num(b / 1024)} KiB` : `${b} B`);
  const median = (v) => { const s = [...v].sort((a, b) => a - b), m = s.length >> 1; return s.length % 2 ? s[m] : (s[m - 1] + s[m]) / 2; };
  const unique = (values) => [...new Set(values)];

  // On a phone the matrix comes first, for the keyboard as for the eye.
  const narrow = matchMedia("(max-width: 600px)"), after = $("matrix").nextElementSibling;
  const arrange = () => (narrow.matches ? after.parentElement.prepend($("matrix")) : after.before($("matrix")));
  narrow.addEventListener("change", arrange);
  arrange();

  // Failures first. What is found out about one cell of a cluster stands for all.
  const shell = (word) => (/^[\w.\/=+:@~-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`);
  const asks = (c) => (/^x?fail$/.test(verdict(c)) && !D.unasked.includes(T[c[CLASS]]) ? D.questions[T[c[STAGE]]] || [] : []).map((verb) => `python -m batch_export ${verb} ${shell(name(c))}${D.run ? ` --run ${shell(D.run)}` : ""}`);
  const command = (line) => `<div class="command"><pre>${esc(line)}</pre><button type="button" data-copy="${esc(line)}" aria-label="Copy: ${esc(line)}">Copy</button></div>`;
  const place = (c) => (c[WHERE] ? [c[WHERE][2], c[WHERE][1], c[WHERE][0]].filter(Boolean).map((n) => `<code>${esc(T[n])}</code>`).join(" · ") : "");
  if (D.clusters.length) {
    $("clusters").hidden = false;
    const items = D.clusters.map(([v, title, kind, cause, cells, since, fresh]) => {
      const more = cells.length > 12 ? `<span>and ${cells.length - 12} more</span>` : "";
      const models = unique(cells.map((i) => MODEL(C[i]))).length, exporters = unique(cells.map((i) => EXPORTER(C[i]))).length, at = place(C[cells[0]]), next = asks(C[cells[0]]);
      const chips = cells.slice(0, 12).map((i) => `<button type="button" data-open="${i}" aria-label="Open ${esc(name(C[i]))}">${models > 1 ? `${esc(MODEL(C[i]))} ` : ""}opset ${OPSET(C[i])} ${esc(DYN(C[i]))}${exporters > 1 ? ` ${esc(EXPORTER(C[i]))}` : ""}${T[C[i][MARK]] ? " · " + T[C[i][MARK]] : ""}</button>`);
      return `<li><b>${cells.length} ${esc(T[v])}${fresh ? `, ${fresh === cells.length ? "" : `${fresh} `}new` : ""}</b>${esc(T[title])}<p><code>${esc(T[kind])}</code> ${esc(T[cause])}</p>${T[since] ? `<p class="since">${esc(T[since])}</p>` : ""}${at ? `<p class="note">First wrong: ${at}</p>` : ""}<div class="chips">${chips.join("")}${more}</div>${next.length ? command(next[0]) : ""}</li>`;
    });
    $("clusters").querySelector("ol").innerHTML = items.slice(0, 8).join("");
    if (items.length > 8) $("clusters").insertAdjacentHTML("beforeend", `<details><summary>${items.length - 8} more causes</summary><ol>${items.slice(8).join("")}</ol></details>`);
  }
  if (D.changes.length || D.contended) {
    const titles = D.titles;
    $("changes").hidden = false;
    $("changes").querySelector("div").innerHTML = (D.contended ? `<p class="note">${esc(D.contended)}.</p>` : "") + Object.keys(titles).map((kind) => {
      const of = D.changes.filter((c) => c[0] === kind);
      const line = ([, cell, i, text]) => `<li>${i < 0 ? `<code>${esc(cell)}</code>` : `<a href="#cell=${esc(cell)}"><code>${esc(cell)}</code></a>`} ${esc(T[text])}</li>`;
      const list = (part) => `<ul>${part.map(line).join("")}</ul>`;
      if (!of.length) return "";
      const rest = of.length > 15 ? `<details><summary>${of.length - 15} more</summary>${list(of.slice(15))}</details>` : "";
      if (kind === "still") return `<details><summary>${titles[kind]} (${of.length})</summary>${list(of)}</details>`; // no news
      return `<h3>${titles[kind]} (${of.length})</h3>${list(of.slice(0, 15))}${rest}`;
    }).join("");
  }

  // Filters.
  const fields = Object.fromEntries(AXES.slice(1).map((a) => [a.axis, a.of]));
  const option = (value) => `<option>${esc(value)}</option>`;
  for (const [key, of] of Object.entries(fields)) {
    const values = unique(C.map(of));
    if (key === "opset") values.sort((a, b) => a - b);
    $(`f-${key}`).insertAdjacentHTML("beforeend", values.map(option).join(""));
    if (values.length < 2) $(`f-${key}`).parentElement.hidden = true, $(`f-${key}`).parentElement.style.display = "none";
  }
  $("f-verdict").insertAdjacentHTML("beforeend", `<option value="bad">unexpected</option>` + VERDICTS.filter((v) => D.counts[v]).map(option).join("") + (C.some((c) => c[MARK]) ? "<option value='mark:new'>new failures</option><option value='mark:still'>still failing</option><option value='mark:fixed'>fixed</option>" : ""));

  // The matrix: drawn once, then hidden, dimmed and ordered.
  const dynamics = unique(C.map(fields.dynamic));
  const parted = [...axes("exporter"), ...axes("provider"), ...AXES.slice(1).filter((a) => !["dynamic", "opset", "provider", "exporter"].includes(a.axis))];
  const columnKey = (c) => [...parted.map((a) => a.of(c)), String(dynamics.indexOf(DYN(c))).padStart(3, "0"), OPSET(c).padStart(3, "0")].join("\u0000");
  const keys = unique(C.map(columnKey)).sort(), columns = new Map(keys.map((k, i) => [k, i]));
  const rows = new Map();
  C.forEach((c, i) => {
    if (!rows.has(MODEL(c))) rows.set(MODEL(c), Array(keys.length).fill(-1));
    rows.get(MODEL(c))[columns.get(columnKey(c))] = i;
  });
  const several = parted.map((a) => unique(C.map(a.of)).length > 1), opsetOf = (k) => +k.split("\u0000").at(-1);
  const groupOf = (k) => { const words = k.split("\u0000"); return [...parted.map((_, i) => several[i] && words[i]), dynamics[+words.at(-2)]].filter(Boolean).join(" · "); };
  const describe = (c) => `${name(c)}: ${verdict(c)}${c[STAGE] ? " at " + T[c[STAGE]] : ""}${T[c[MARK]] ? ", " + T[c[MARK]] : ""}${c[ABS] !== null ? ", error " + num(c[ABS]) : ""}${T[c[RANDOM]] ? ", judged by distribution" : ""}${c[LAT] ? ", " + ms(c[LAT][0]) : ""}`;
  const star = (c) => (T[c[RANDOM]] && /^(x?pass|flaky)$/.test(verdict(c)) ? "*" : "");
  let visible = new Set(keys.map((_, i) => i));
  // What a cell shows beside its colour, by what is to be shown; latencies are coloured within their row.
  const fastest = new Map([...rows].map(([m, cells]) => [m, Math.min(...cells.filter((i) => i >= 0 && C[i][LAT]).map((i) => C[i][LAT][0]))]));
  const short = (v) => (v === 0 ? "0" : v.toExponential(0).replace("e+", "e"));
  const labels = { error: (c) => short(c[ABS]), speed: (c) => `${num(+ratio(c).toPrecision(2))}x`, latency: (c) => `${c[LAT][5] ? "~" : ""}${ms(c[LAT][0]).replace(" ", "")}` };
  const legends = {
    verdict: () => VERDICTS.filter((v) => D.counts[v]).map((v) => `<span class="v-${v}">${GLYPH[v]} ${v}</span>`).join(""),
    error: () => "Largest absolute difference from eager; the darker, the larger (1e-9 to 0.1). ",
    latency: () => "Median time of one inference; the darker, the slower beside the model's fastest cell (up to 4 times). ~ busy machine. ",
    speed: () => "Eager's time over the file's; the darker, the faster (0.5 to 16 times). ",
  };
  const heat = { latency: (c) => (c[LAT] ? Math.log2(c[LAT][0] / fastest.get(MODEL(c))) / 2 : null), error: (c) => (c[ABS] === null ? null : c[ABS] === 0 ? 0 : (Math.log10(c[ABS]) + 9) / 8), speed: (c) => (ratio(c) === null ? null : (Math.log2(ratio(c)) + 1) / 5) };
  function td(i) {
    if (i < 0) return `<td class="empty"></td>`;
    const c = C[i], v = verdict(c), shade = $("shade").value;
    const value = heat[shade] && heat[shade](c);
    if (value !== null && value !== undefined && (v === "pass" || v === "xpass")) {
      const x = Math.max(0, Math.min(1, value)), light = shade === "speed" ? 50 + 42 * (1 - x) : 92 - 42 * x;
      const label = labels[shade](c);
      return `<td data-i="${i}" tabindex="-1" class="heat" data-m="${T[c[MARK]]}" style="background:hsl(${shade === "error" ? 32 : 205} 75% ${light}%)" aria-label="${esc(describe(c))}">${label}${star(c)}</td>`;
    }
    return `<td data-i="${i}" tabindex="-1" class="v-${v}" data-m="${T[c[MARK]]}" aria-label="${esc(describe(c))}">${GLYPH[v]}${star(c)}</td>`;
  }
  const filters = () => ({ q: $("q").value.trim().toLowerCase(), verdict: $("f-verdict").value, ...Object.fromEntries(Object.keys(fields).map((k) => [k, $(`f-${k}`).value])) });
  const says = (c) => `${name(c)} ${T[c[STAGE]]} ${T[c[CLASS]]} ${T[c[MSG]]}`.toLowerCase();
  function matches(c, f) {
    for (const key of Object.keys(fields)) if (f[key] && fields[key](c) !== f[key]) return false;
    const v = verdict(c);
    if (f.verdict === "bad" ? !BAD.has(v) : f.verdict.startsWith("mark:") ? T[c[MARK]] !== f.verdict.slice(5) : f.verdict && v !== f.verdict) return false;
    return !f.q || says(c).includes(f.q);
  }
  function draw() {
    const f = filters(), ok = C.map((c) => matches(c, f));
    const axesOk = C.map((c) => Object.keys(fields).every((k) => !f[k] || fields[k](c) === f[k]));
    visible = new Set(C.flatMap((c, i) => (axesOk[i] ? [columns.get(columnKey(c))] : [])));
    const shown = [...visible].sort((a, b) => a - b);
    let order = [...rows].filter(([, cells]) => cells.some((i) => i >= 0 && ok[i]));
    const most = (of) => ([, cells]) => Math.max(-Infinity, ...cells.filter((i) => i >= 0 && ok[i]).map((i) => of(C[i])));
    const sorts = { bad: ([, cells]) => cells.filter((i) => i >= 0 && BAD.has(verdict(C[i]))).length, latency: most((c) => (c[LAT] ? c[LAT][0] : -1)), error: most((c) => c[ABS] ?? -1) };
    const by = sorts[$("sort").value];
    order.sort((a, b) => (by ? by(b) - by(a) : 0) || (a[0] < b[0] ? -1 : 1));
    const groups = [];
    for (const k of shown) { const g = groupOf(keys[k]); if (groups.length && groups.at(-1)[0] === g) groups.at(-1)[1]++; else groups.push([g, 1]); }
    const head = `<thead><tr><th class="corner" scope="col" rowspan="2">model</th>${groups.map(([g, n]) => `<th scope="colgroup" colspan="${n}"><span>${esc(g)}</span></th>`).join("")}</tr><tr>${shown.map((k) => `<th scope="col" aria-label="${esc(groupOf(keys[k]))} opset ${opsetOf(keys[k])}">${opsetOf(keys[k])}</th>`).join("")}</tr></thead>`;
    const body = order.map(([model, cells]) => `<tr><th scope="row" title="${esc(model)}">${esc(model)}</th>${shown.map((k) => td(cells[k])).join("")}</tr>`).join("");
    const shade = $("shade").value, marked = C.some((c) => /new|fixed/.test(T[c[MARK]]));
    $("legend").innerHTML = legends[shade]() + (marked ? '<span class="outlined">outlined</span> new or fixed against the base' : "");
    $("grid").classList.toggle("wide", shade !== "verdict");
    $("grid").parentElement.classList.toggle("tall", order.length > 60);
    $("grid").innerHTML = `<caption hidden>One row per model, one column per exporter, provider, dynamic setting and opset</caption>${head}<tbody>${body}</tbody>`;
    const any = f.q || f.verdict;
    if (any) for (const cell of $("grid").querySelectorAll("td[data-i]")) if (!ok[+cell.dataset.i]) cell.classList.add("dim");
    const first = $("grid").querySelector("td[data-i]:not(.dim)");
    if (first) first.tabIndex = 0;
    $("shown").textContent = `${ok.filter(Boolean).length} of ${C.length} cells, ${order.length} models`;
  }
  let waiting = 0;
  $("filters").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(draw, C.length > 2000 ? 120 : 0); });
  $("filters").addEventListener("reset", () => setTimeout(draw));
  $("filters").addEventListener("submit", (e) => e.preventDefault());

  // Keys: arrows and Home/End move in the matrix, Enter opens, / searches.
  function move(from, dx, dy) {
    const row = from.parentElement, index = [...row.children].indexOf(from);
    let r = row, c = index;
    for (;;) {
      c += dx;
      if (dy) r = dy > 0 ? r.nextElementSibling : r.previousElementSibling;
      const to = r && r.children[c];
      if (!to || to.tagName !== "TD") return;
      if (to.dataset.i !== undefined) { from.tabIndex = -1; to.tabIndex = 0; to.focus(); to.scrollIntoView({ block: "nearest", inline: "nearest" }); return; }
    }
  }
  $("grid").addEventListener("keydown", (e) => {
    const at = e.target.closest("td[data-i]");
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[e.key];
    if (!at) return;
    if (step) { e.preventDefault(); move(at, ...step); }
    if (e.key === "Enter" || e.key === " ") { e.preventDefault(); open(+at.dataset.i); }
    if (e.key === "Home" || e.key === "End") { e.preventDefault(); const all = [...at.parentElement.querySelectorAll("td[data-i]")]; at.tabIndex = -1; const to = e.key === "Home" ? all[0] : all.at(-1); to.tabIndex = 0; to.focus(); }
  });
  document.addEventListener("keydown", (e) => { if (e.key === "/" && !/INPUT|SELECT|TEXTAREA/.test(e.target.tagName) && !$("cell").open) { e.preventDefault(); $("q").focus(); } });
  document.addEventListener("click", (e) => {
    const opener = e.target.closest("[data-open]"), cell = e.target.closest("#grid td[data-i]");
    if (opener) open(+opener.dataset.open);
    else if (cell) open(+cell.dataset.i);
    else if (e.target === $("cell") || e.target.closest("[data-close]")) $("cell").close();
    const copy = e.target.closest("[data-copy]");
    if (copy && navigator.clipboard) navigator.clipboard.writeText(copy.dataset.copy).then(() => { copy.textContent = "Copied"; });
  });
  let opener = null;
  $("cell").addEventListener("close", () => { history.replaceState(null, "", location.pathname + location.search); if (opener && opener.isConnected) opener.focus(); });
  function open(i) {
    opener = document.activeElement;
    $("cell-body").innerHTML = page(C[i], i);
    history.replaceState(null, "", `#cell=${encodeURIComponent(name(C[i]))}`);
    if (!$("cell").open) $("cell").showModal();
    $("cell").scrollTop = 0;
  }
  function fromHash() {
    const wanted = location.hash.startsWith("#cell=") ? decodeURIComponent(location.hash.slice(6)) : "";
    const i = wanted ? C.findIndex((c) => name(c) === wanted) : -1;
    if (i >= 0) open(i);
  }
  addEventListener("hashchange", fromHash);

  // One cell.
  const table = (head, lines) => `<table class="facts">${head ? `<thead><tr>${head.map((h) => (h[0] === ">" ? `<th scope="col" class="n">${h.slice(1)}</th>` : `<th scope="col">${h}</th>`)).join("")}</tr></thead>` : ""}<tbody>${lines.join("")}</tbody></table>`;
  const part = (title, html) => (html ? `<h3>${title}</h3>${html}` : "");
  function page(c, i) {
    const v = verdict(c), o = c[ONNX], l = c[LAT];
    const repro = [D.repro, ...AXES.map((a) => shell(`matrix.${a.key}=[${a.of(c)}]`))].join(" ");
    const where = c[WHERE] && c[WHERE].some((n, k) => k !== 3 && n) ? table(null, [["Source", 0], ["Node", 1], ["Operator", 2], ["Module", 4], ["To blame", 5], ["Bisect says", 6]].filter(([, k]) => c[WHERE][k]).map(([n, k]) => `<tr><th scope="row">${n}</th><td>${k < 5 ? `<code>${esc(T[c[WHERE][k]])}</code>` : esc(T[c[WHERE][k]])}</td></tr>`)) : "";
    const detail = c[WHERE] && c[WHERE][3] ? `<details><summary>Details</summary><pre>${esc(T[c[WHERE][3]])}</pre></details>` : "";
    const runs = c[RUNS].map((r) => r.length === 2 ? `<tr><td>${esc(T[r[0]])}</td><td colspan="4">${esc(T[r[1]])}</td></tr>` : `<tr><td>${esc(T[r[0]])}</td><td>${esc(T[r[2]])} <span class="note">${esc(T[r[9]])}</span></td><td class="n">${num(r[4])}</td><td class="n">${num(r[5])}</td><td class="n">${r[6]} / ${r[7]}${r[8] ? `, ${r[8]} NaN or Inf` : ""}</td></tr>`);
    const worst = c[RUNS].find((r) => r.length > 10), e = worst && worst[12];
    const element = e ? `<p class="note" id="worst">Worst element <code>${esc(T[worst[2]] + T[e[0]])}</code>: eager <code>${esc(T[e[1]])}</code>, file <code>${esc(T[e[2]])}</code>${e[3] === null ? "" : `, ${num(e[3])} units in the last place apart`}; ${e[4]} of ${worst[7]} elements beyond the default tolerance of ${esc(T[worst[3]])}.</p>` : "";
    const file = o ? `${T[o[0]]}` : "";
    const link = o && D.artifacts ? `<a href="${esc(encodeURI(`${D.artifacts}/${file}`))}" download="${esc(`${AXES.filter((a) => !["provider", "exporter"].includes(a.axis)).map((a) => a.word(c)).join("-")}.onnx`)}">ONNX file</a>` : "";
    return [
      `<div class="top"><h2 id="cell-name">${esc(name(c))}</h2><button type="button" data-close>Close</button></div>`,
      `<p><span class="tag v-${v}">${v}${c[STAGE] ? ` at ${esc(T[c[STAGE]])}` : ""}</span>${T[c[MARK]] ? `<span class="tag">${esc(T[c[MARK]])}</span>` : ""}${c[CLASS] ? `<code>${esc(T[c[CLASS]])}</code>` : ""}</p>`,
      c[MSG] ? `<p>${esc(T[c[MSG]])}</p>` : "",
      T[c[RANDOM]] ? `<p class="note">${esc(T[c[RANDOM]])}</p>` : "",
      c[CHANGES].length ? part("Against the base", `<ul>${c[CHANGES].map((n) => `<li>${esc(T[n])}</li>`).join("")}</ul>`) : "",
      part("First wrong node", where), detail,
      c[FINDINGS].length ? part("Findings about the file", `<ul>${c[FINDINGS].map((n) => `<li>${esc(T[n])}</li>`).join("")}</ul>`) : "",
      part("Reproduce", [...asks(c), repro].map(command).join("")),
      part("Stages", c[ACTIONS].length ? table(["stage", "origin", ">seconds"], c[ACTIONS].map((a) => `<tr><td>${esc(T[a[0]])}</td><td>${a[1] ? "from the cache" : "ran"}</td><td class="n">${num(a[2])}</td></tr>`)) : ""),
      part("Contract", c[CONTRACT].length ? table(["what", "requested", "in the file"], c[CONTRACT].map(([n, a, g]) => `<tr><th scope="row">${esc(T[n])}</th><td><code>${esc(T[a]) || "any"}</code></td><td><code>${esc(T[g])}</code></td></tr>`)) : ""),
      part("Error against eager", runs.length ? table(["sizes", "worst output", ">max abs", ">max rel", ">unequal"], runs) + element + (T[c[FLOAT64]] ? `<p class="note">Eager in float64: ${esc(T[c[FLOAT64]])}.</p>` : "") + (worst ? histogram(worst) + hull(worst) : "") : ""),
      part("Latency", l ? latency(l, c[EAGER]) : ""),
      part("History", c[PAST] && c[PAST][0].length > 1 ? sparkline(T[c[PAST][2]].split(" ").map((at, k) => [+c[PAST][0][k], c[PAST][1][k], at])) : ""),
      part("File", o ? table(null, [["Size", size(o[2])], ["Nodes", o[3]], ["sha256", `<code>${T[o[1]]}…</code>`], ["Placed on", c[PLACED].map(([p, n]) => `${esc(T[p])} ${n}`).join(", ") || "–"]].map(([k, x]) => `<tr><th scope="row">${k}</th><td>${x}</td></tr>`)) + (link ? `<p>${link} (external data, if any, lies beside it; to look at it: <code>netron ${esc(`${D.artifacts}/${file}`)}</code>)</p>` : "") : ""),
      c[LOG] && D.logs ? `<p><a href="${esc(encodeURI(`./${D.logs}/${T[c[LOG]]}`))}">Log</a></p>` : "",
    ].join("");
  }

  // Plots: plain SVG.
  const figure = (caption, w, h, inner, label) => `<figure><figcaption>${caption}</figcaption><svg viewBox="0 0 ${w} ${h}" role="img" aria-label="${esc(label || caption)}">${inner}</svg></figure>`;
  const line = (x1, y1, x2, y2, cls) => `<line x1="${x1.toFixed(1)}" y1="${y1.toFixed(1)}" x2="${x2.toFixed(1)}" y2="${y2.toFixed(1)}" class="${cls}"/>`;
  const label = (x, y, text, anchor, cls) => `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" text-anchor="${anchor || "start"}" class="${cls || ""}">${esc(text)}</text>`;
  function histogram(r) {
    if (!r[11].length) return "";
    const floor = r[11].at(-1)[0] - 14, merged = new Map(); // what is smaller by so much is one bar: labels need room
    for (const [d, count] of r[11]) merged.set(Math.max(d, floor), (merged.get(Math.max(d, floor)) || 0) + count);
    const bins = [...merged], says = (d) => (d === floor && r[11][0][0] < floor ? `≤1e${d}` : `1e${d}`);
    const low = bins[0][0], n = bins.at(-1)[0] - low + 1, most = Math.max(...bins.map((b) => b[1])), w = Math.min(60, 620 / n);
    const bars = bins.map(([d, count]) => { const h = 70 * Math.log1p(count) / Math.log1p(most), x = 40 + (d - low) * w; return `<rect class="bar" x="${x + 1}" y="${88 - h}" width="${w - 2}" height="${h}"><title>${says(d)}: ${count}</title></rect>${label(x + w / 2, 84 - h, count, "middle", "soft")}${label(x + w / 2, 103, says(d), "middle", "soft")}`; });
    return figure("Elements by size of their error", 700, 110, bars.join("") + line(40, 88, 690, 88, "axis"), `Error histogram: ${bins.map(([d, k]) => `${k} elements about 1e${d}`).join(", ")}`);
  }
  function hull(r) {
    const points = r[10].filter(([x, y]) => x > 0 && y > 0), tol = D.tolerances[T[r[3]]];
    if (points.length < 2) return "";
    const xs = points.map((p) => Math.log10(p[0])), bound = (x) => (tol ? Math.log10(tol[0] + tol[1] * 10 ** x) : null);
    const x0 = Math.min(...xs), x1 = Math.max(...xs) + 1e-9, ys = points.map((p) => Math.log10(p[1])).concat(tol ? [bound(x0), bound(x1)] : []);
    const y0 = Math.floor(Math.min(...ys)), y1 = Math.ceil(Math.max(...ys));
    const X = (x) => 70 + 610 * (x - x0) / (x1 - x0), Y = (y) => 150 - 135 * (y - y0) / (y1 - y0 || 1);
    const curve = `<polyline class="curve" points="${points.map((p) => `${X(Math.log10(p[0])).toFixed(1)},${Y(Math.log10(p[1])).toFixed(1)}`).join(" ")}"/>`;
    const limit = tol ? `<polyline class="tol" points="${Array.from({ length: 21 }, (_, k) => { const x = x0 + (x1 - x0) * k / 20; return `${X(x).toFixed(1)},${Y(bound(x)).toFixed(1)}`; }).join(" ")}"/>${label(76, Math.max(12, Y(bound(x0)) - 5), "tolerance", "start", "soft")}` : "";
    return figure("Largest error by size of the value", 700, 178, line(70, 150, 690, 150, "axis") + line(70, 12, 70, 150, "axis") + label(64, 20, `1e${y1}`, "end", "soft") + label(64, 150, `1e${y0}`, "end", "soft") + label(70, 168, `|value| ${num(10 ** x0)}`, "start", "soft") + label(690, 168, num(10 ** x1), "end", "soft") + curve + limit, `Hull of the errors from ${num(points[0][1])} to ${num(points.at(-1)[1])}${tol ? `, tolerance ${tol[0]} + ${tol[1]} of the value` : ""}`);
  }
  function latency([mid, p95, low, high, runs, busy], eager) {
    const most = Math.max(p95, eager || 0) * 1.05, X = (v) => 70 + 540 * v / most;
    const bar = (y, v, cls, name) => `${label(64, y + 13, name, "end")}<rect x="70" y="${y}" width="${(X(v) - 70).toFixed(1)}" height="18" class="${cls}"/>${label(X(v) + 6, y + 13, ms(v), "start")}`;
    const inner = (eager ? bar(4, eager, "bar2", "eager") : "") + bar(32, mid, "bar", "ONNX") + line(X(low), 28, X(low), 54, "mark") + line(X(high), 28, X(high), 54, "mark") + line(X(low), 41, X(high), 41, "mark") + line(X(p95), 36, X(p95), 46, "axis");
    const text = `Median ${ms(mid)}, 95 % interval ${ms(low)} to ${ms(high)}, p95 ${ms(p95)}, ${runs} runs${eager ? `; eager ${ms(eager)}, ${num(eager / mid)} times as long` : ""}${busy ? "; the machine was busy" : ""}`;
    return figure("Median and its 95 % interval", 700, 60, inner, text) + `<p class="note">${text}</p>`;
  }
  function sparkline(past) {
    const timed = past.filter((p) => p[1]), most = Math.max(...timed.map((p) => p[1]), 0), low = Math.min(...timed.map((p) => p[1]), most);
    const X = (k) => 20 + 640 * k / Math.max(1, past.length - 1), Y = (v) => 42 - 32 * (v - low) / (most - low || 1);
    const curve = `<polyline class="curve" points="${past.map((p, k) => (p[1] ? `${X(k).toFixed(1)},${Y(p[1]).toFixed(1)}` : "")).filter(Boolean).join(" ")}"/>`;
    const dots = past.map((p, k) => `<circle cx="${X(k).toFixed(1)}" cy="56" r="4" class="dot${BAD.has(VERDICTS[p[0]]) ? " bad" : ""}"><title>${p[2]} ${VERDICTS[p[0]]} ${p[1] ? ms(p[1]) : ""}</title></circle>`).join("");
    const bad = past.filter((p) => BAD.has(VERDICTS[p[0]])).length;
    return figure(`Last ${past.length} runs: latency ${timed.length ? `${ms(low)} to ${ms(most)}` : "not measured"}, ${bad} bad`, 680, 64, curve + dots);
  }
  function bars(title, pairs, text) {
    const top = pairs.filter((p) => p[1] > 0).sort((a, b) => b[1] - a[1]).slice(0, 15);
    if (!top.length) return "";
    const most = top[0][1], least = top.at(-1)[1], row = 20;
    const wide = most / least > 20, X = (v) => 190 * (wide ? Math.log(2 * v / least) / Math.log(2 * most / least) : v / most); // one must not hide all others
    if (wide) title += " (logarithmic)";
    const inner = top.map(([n, v], k) => `${label(150, k * row + 14, n.length > 20 ? n.slice(0, 19) + "…" : n, "end")}<rect class="bar" x="156" y="${k * row + 3}" width="${X(v).toFixed(1)}" height="14"/>${label(162 + X(v), k * row + 14, text(v), "start", "soft")}`).join("");
    return figure(title, 430, top.length * row + 4, inner, `${title}: ${top.map(([n, v]) => `${n} ${text(v)}`).join(", ")}`);
  }
  function plots() {
    const per = (of) => [...rows].map(([m, cells]) => { const values = cells.filter((i) => i >= 0).map((i) => of(C[i])).filter((v) => v !== null && v !== undefined && v > 0); return [m, values.length ? median(values) : 0]; });
    $("plots").innerHTML = [
      bars("Latency, median", per((c) => (c[LAT] ? c[LAT][0] : null)), ms), bars("Speed-up over eager, median", per(ratio), (v) => `${num(v)}x`),
      bars("File size", per((c) => (c[ONNX] ? c[ONNX][2] : null)), size), bars("Seconds of capture and translation", per(seconds), (v) => `${num(v)} s`),
    ].join("");
  }

  addEventListener("beforeprint", () => { for (const part of document.querySelectorAll("#clusters details, .about")) part.open = true; });

  draw();
  fromHash();
  (window.requestIdleCallback || setTimeout)(plots);
  document.documentElement.dataset.ready = "1";
})();
