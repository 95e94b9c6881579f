// ONNX Runtime Web in headless Chromium as serve.cjs wants a runtime: WebGPU, or WebAssembly as browsers run it.
//
// A server on this machine's own address gives the browser a page, which asks it for requests and posts its answers. The
// browser ends with this process: it holds the other end of a pipe (`--remote-debugging-pipe`). CHROMIUM names the program,
// CHROMIUM_FLAGS adds to its flags. Of what it prints, most of it about buses that a server has not, only what ends it is
// kept.
'use strict';
const { spawn } = require('node:child_process');
const { randomBytes } = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');
const { externalFiles } = require('./onnxruntime_js.cjs');

const PROGRAMS = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable', 'chrome'];
const ON_A_MAC = '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome';
const LIBRARY = 'ort.webgpu.min.mjs';
const START_LIMIT_MS = 50_000;
const TYPES = { '.mjs': 'text/javascript', '.wasm': 'application/wasm' };
const HEADERS = { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' };

// The machine lacks something; serve.py says what the name means.
class UnavailableError extends Error {
  name = 'UnavailableError';
}

// What runs in the page. Frames both ways: the length of a JSON header in four bytes, the header, and blocks of bytes.
async function inPage(library) {
  const ort = await import(library);
  const ARRAYS = {
    float32: Float32Array,
    float64: Float64Array,
    float16: typeof Float16Array === 'undefined' ? Uint16Array : Float16Array,
    int8: Int8Array,
    uint8: Uint8Array,
    int16: Int16Array,
    uint16: Uint16Array,
    int32: Int32Array,
    uint32: Uint32Array,
    int64: BigInt64Array,
    uint64: BigUint64Array,
    bool: Uint8Array,
  };
  let session, feeds, result;

  function packed(header, blocks = []) {
    const text = new TextEncoder().encode(JSON.stringify({ ...header, sizes: blocks.map(({ byteLength }) => byteLength) }));
    return new Blob([new Uint32Array([text.length]), text, ...blocks]);
  }

  function unpacked(buffer) {
    const length = new DataView(buffer).getUint32(0, true);
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    let place = 4 + length;
    return [header, header.sizes.map((size) => buffer.slice(place, (place += size)))];
  }

  function tensor(name, { dtype, shape, texts }, block) {
    if (dtype === 'str') return new ort.Tensor('string', texts, shape);
    const kind = ARRAYS[dtype];
    if (kind === undefined) throw new Error(`ONNX Runtime's JavaScript takes no ${dtype} (${name})`);
    return new ort.Tensor(dtype, new kind(block), shape);
  }

  const requests = {
    async connect({ threads }) {
      ort.env.wasm.numThreads = threads;
      ort.env.logLevel = 'error';
      const version = ort.env.versions?.web ?? ort.env.versions?.common ?? '';
      if (!navigator.gpu) return [{ version, lacking: 'this browser has no WebGPU' }];
      const adapter = await navigator.gpu.requestAdapter();
      if (!adapter) return [{ version, lacking: 'WebGPU finds no adapter on this machine' }];
      const { vendor, architecture } = adapter.info;
      return [{ version, adapter: [vendor, architecture].filter(Boolean).join(' ') }];
    },
    async open({ settings, external }, [model, ...files]) {
      const externalData = external.map((name, index) => ({ path: name, data: new Uint8Array(files[index]) }));
      session = await ort.InferenceSession.create(new Uint8Array(model), { ...settings, externalData });
      const shapes = (session.inputMetadata ?? []).map(({ name, shape }) => ({ name, shape }));
      return [{ input_names: session.inputNames, output_names: session.outputNames, shapes }];
    },
    async feed({ names, tensors }, blocks) {
      feeds = Object.fromEntries(names.map((name, index) => [name, tensor(name, tensors[index], blocks[index])]));
      return [{}];
    },
    async run() {
      const began = performance.now();
      result = await session.run(feeds);
      return [{ wall_ns: Math.round(1e6 * (performance.now() - began)) }];
    },
    async fetch() {
      const blocks = [];
      const tensors = session.outputNames.map((name) => {
        const { type, dims, data } = result[name];
        if (type === 'string') blocks.push(new Uint8Array(0));
        else blocks.push(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
        return type === 'string' ? { dtype: 'str', shape: dims, texts: [...data] } : { dtype: type, shape: dims };
      });
      return [{ tensors }, blocks];
    },
  };

  for (;;) {
    const asked = await fetch('next');
    const [header, blocks] = unpacked(await asked.arrayBuffer());
    let answer;
    try {
      answer = packed(...(await requests[header.do](header, blocks)));
    } catch (error) {
      answer = packed({ error: { name: error?.name ?? 'Error', message: String(error?.message ?? error) } });
    }
    await fetch('done', { method: 'POST', body: answer });
  }
}

function packed(header, blocks) {
  const text = Buffer.from(JSON.stringify({ ...header, sizes: blocks.map(({ length }) => length) }), 'utf8');
  const length = Buffer.alloc(4);
  length.writeUInt32LE(text.length);
  return [length, text, ...blocks];
}

function unpacked(data) {
  const length = data.readUInt32LE(0);
  const header = JSON.parse(data.toString('utf8', 4, 4 + length));
  let place = 4 + length;
  return [header, header.sizes.map((size) => data.subarray(place, (place += size)))];
}

function chromium() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  const folders = (process.env.PATH ?? '').split(path.delimiter);
  const found = PROGRAMS.flatMap((name) => folders.map((folder) => path.join(folder, name))).concat(ON_A_MAC);
  const there = found.find((file) => fs.existsSync(file));
  if (there === undefined) {
    throw new UnavailableError('no Chromium on the path (Debian: apt-get install chromium); CHROMIUM names another program');
  }
  return there;
}

// A browser with the page open: one request at a time.
class Browser {
  constructor(library) {
    this.folder = path.dirname(require.resolve(library));
    this.token = randomBytes(16).toString('hex');
    this.waiting = null; // the page's question for the next request
    this.pending = null; // the request that it has, or will have
    this.server = http.createServer((request, response) => this.serve(request, response));
  }

  async start() {
    const program = chromium();
    await new Promise((resolve) => this.server.listen(0, '127.0.0.1', resolve));
    const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'batch_export_chromium_'));
    const flags = ['--headless=new', '--remote-debugging-pipe', '--no-first-run', '--enable-unsafe-webgpu'];
    if (process.getuid?.() === 0) flags.push('--no-sandbox'); // root has no sandbox of its own
    flags.push(`--user-data-dir=${profile}`, ...(process.env.CHROMIUM_FLAGS ?? '').split(' ').filter(Boolean));
    const page = `http://127.0.0.1:${this.server.address().port}/${this.token}/`;
    this.process = spawn(program, [...flags, page], { stdio: ['ignore', 'ignore', 'pipe', 'pipe', 'pipe'] });
    for (const stream of this.process.stdio) stream?.on('error', () => {});
    this.process.stdio[4].resume();
    this.process.on('error', (error) => this.fail(new UnavailableError(`${program} cannot be started: ${error.message}`)));
    let fatal = '';
    this.process.stdio[2].on('data', (data) => (fatal = /FATAL:.*/.exec(data.toString())?.[0] ?? fatal));
    this.process.on('exit', (code, signal) => {
      const how = signal ?? `exit code ${code}`;
      setImmediate(() => this.fail(new Error(`Chromium ended with ${how}${fatal && `: ${fatal}`}`)));
    });
    this.profile = profile;
    this.ended = new Promise((resolve) => this.process.on('exit', resolve).on('error', resolve));
    process.on('exit', () => this.process.kill('SIGKILL'));
  }

  // Ends the browser and removes its profile, which its last processes may still write to for a moment.
  async close() {
    this.process.kill('SIGTERM');
    await this.ended;
    await fs.promises.rm(this.profile, { recursive: true, force: true, maxRetries: 10 }).catch(() => {});
  }

  fail(error) {
    this.failure = error;
    this.pending?.reject(error);
  }

  serve(request, response) {
    const [, token, ...rest] = request.url.split('/');
    const asked = rest.join('/');
    for (const [name, value] of Object.entries(HEADERS)) response.setHeader(name, value);
    response.setHeader('Cache-Control', 'no-store');
    if (token !== this.token) response.writeHead(404).end();
    else if (asked === 'next') this.hand((this.waiting = response));
    else if (asked === 'done') this.take(request, response);
    else if (asked === '') {
      response.setHeader('Content-Type', 'text/html; charset=utf-8');
      response.end(`<!doctype html><title>ONNX Runtime</title><script type="module">(${inPage})('./${LIBRARY}')</script>`);
    } else {
      const file = path.join(this.folder, path.basename(asked));
      const type = TYPES[path.extname(file)];
      if (type === undefined || !fs.existsSync(file)) return void response.writeHead(404).end();
      response.setHeader('Content-Type', type);
      fs.createReadStream(file).pipe(response);
    }
  }

  hand() {
    if (this.waiting === null || this.pending === null || this.pending.handed) return;
    this.pending.handed = true;
    for (const block of this.pending.frame) this.waiting.write(block);
    this.waiting.end();
    this.waiting = null;
  }

  take(request, response) {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', () => {
      response.end();
      const [header, blocks] = unpacked(Buffer.concat(parts));
      const { resolve, reject } = this.pending;
      this.pending = null;
      if (header.error === undefined) return resolve([header, blocks]);
      const error = new Error(header.error.message);
      error.name = header.error.name;
      reject(error);
    });
  }

  // Has the page carry out a request; `blocks` are Buffers that go with it.
  ask(header, blocks = []) {
    if (this.failure !== undefined) return Promise.reject(this.failure);
    return new Promise((resolve, reject) => {
      this.pending = { frame: packed(header, blocks), resolve, reject, handed: false };
      this.hand();
    });
  }
}

class Engine {
  constructor(settings, browser, told) {
    this.settings = settings;
    this.browser = browser;
    this.told = told;
  }

  describe() {
    const { version, adapter } = this.told;
    const names = adapter === undefined ? ['wasm'] : ['webgpu', 'wasm'];
    return { version: adapter ? `${version} (${adapter})` : version, execution_providers: names };
  }

  close() {
    return this.browser.close();
  }

  async open(file) {
    const { execution_provider, options, graph_optimization } = this.settings;
    const settings = {
      executionProviders: [{ name: execution_provider || 'webgpu', ...options }],
      graphOptimizationLevel: graph_optimization,
      logSeverityLevel: 3,
    };
    const model = fs.readFileSync(file);
    const external = externalFiles(model);
    const files = external.map((name) => fs.readFileSync(path.join(path.dirname(file), name)));
    const [told] = await this.browser.ask({ do: 'open', settings, external }, [model, ...files]);
    return new Opened(this.browser, told);
  }
}

class Opened {
  constructor(browser, told) {
    this.browser = browser;
    this.input_names = told.input_names;
    this.output_names = told.output_names;
    this.input_shapes = told.input_names.map((name) => {
      const shape = told.shapes.find((value) => value.name === name)?.shape;
      return shape ? shape.map((size) => (typeof size === 'number' && size >= 0 ? size : null)) : null;
    });
    this.placement = {}; // it does not tell
  }

  async prepare(feeds) {
    const values = [...feeds.values()];
    const tensors = values.map(({ dtype, shape, data }) => (dtype === 'str' ? { dtype, shape, texts: data } : { dtype, shape }));
    const blocks = values.map(({ dtype, data }) => (dtype === 'str' ? Buffer.alloc(0) : data));
    await this.browser.ask({ do: 'feed', names: [...feeds.keys()], tensors }, blocks);
    return async () => {
      const [{ wall_ns }] = await this.browser.ask({ do: 'run' });
      return { timed: { wall_ns, cpu_ns: wall_ns } };
    };
  }

  async fetched() {
    const [{ tensors }, blocks] = await this.browser.ask({ do: 'fetch' });
    return tensors.map(({ dtype, shape, texts }, index) => ({ dtype, shape: [...shape], data: texts ?? blocks[index] }));
  }
}

exports.connect = async (settings) => {
  const browser = new Browser(settings.library);
  await browser.start();
  const limit = setTimeout(() => browser.fail(new UnavailableError('Chromium did not open its page')), START_LIMIT_MS);
  try {
    const [told] = await browser.ask({ do: 'connect', threads: settings.threads });
    if (told.lacking !== undefined && settings.execution_provider !== 'wasm') throw new UnavailableError(told.lacking);
    return new Engine(settings, browser, told);
  } catch (error) {
    await browser.close();
    throw error;
  } finally {
    clearTimeout(limit);
  }
};
