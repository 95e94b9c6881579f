// ONNX Runtime's JavaScript packages as serve.cjs wants a runtime: onnxruntime-node, and onnxruntime-web's WebAssembly.
'use strict';
const fs = require('node:fs');
const path = require('node:path');

const ARRAYS = {
  float32: Float32Array,
  float64: Float64Array,
  float16: Uint16Array,
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
const LEVELS = { disabled: 'disabled', basic: 'basic', extended: 'extended', all: 'all' };

// The files that a model's tensors lie in: the values of `location` among their entries of external data, as protobuf
// writes them (field 1 the key, field 2 the value, each with its length before it).
function externalFiles(model) {
  const key = Buffer.from('\x0a\x08location\x12', 'latin1');
  const found = new Set();
  for (let place = model.indexOf(key); place >= 0; place = model.indexOf(key, place + 1)) {
    let at = place + key.length;
    let length = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = model[at++];
      length |= (byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    found.add(model.toString('utf8', at, at + length));
  }
  return [...found];
}

class Engine {
  constructor(settings) {
    this.settings = settings;
    this.ort = require(settings.library);
    this.isWeb = settings.library === 'onnxruntime-web';
    if (this.isWeb) {
      this.ort.env.wasm.numThreads = settings.threads;
    }
    this.ort.env.logLevel = 'error';
  }

  describe() {
    const versions = this.ort.env.versions ?? {};
    return {
      version: String(versions[this.isWeb ? 'web' : 'node'] ?? versions.common ?? ''),
      execution_providers: this.isWeb ? ['wasm'] : this.ort.listSupportedBackends().map(({ name }) => name),
    };
  }

  async open(file) {
    const { execution_provider, options, graph_optimization, threads } = this.settings;
    const asked = execution_provider || (this.isWeb ? 'wasm' : 'cpu');
    const settings = {
      executionProviders: [{ name: asked, ...options }],
      graphOptimizationLevel: LEVELS[graph_optimization],
      intraOpNumThreads: threads,
      interOpNumThreads: 1,
      logSeverityLevel: 3,
    };
    if (!this.isWeb) return new Opened(this.ort, await this.ort.InferenceSession.create(file, settings));
    const model = fs.readFileSync(file);
    const folder = path.dirname(file);
    settings.externalData = externalFiles(model).map((name) => ({
      path: name,
      data: new Uint8Array(fs.readFileSync(path.join(folder, name))),
    }));
    return new Opened(this.ort, await this.ort.InferenceSession.create(new Uint8Array(model), settings));
  }
}

class Opened {
  constructor(ort, session) {
    this.ort = ort;
    this.session = session;
    this.input_names = [...session.inputNames];
    this.output_names = [...session.outputNames];
    const told = session.inputMetadata ?? [];
    this.input_shapes = this.input_names.map((name) => {
      const shape = [...told].find((value) => value.name === name)?.shape;
      return shape ? shape.map((size) => (typeof size === 'number' && size >= 0 ? size : null)) : null;
    });
    this.placement = {}; // neither package tells
  }

  prepare(feeds) {
    const values = {};
    for (const [name, { dtype, shape, data }] of feeds) values[name] = this.tensor(name, dtype, shape, data);
    return () => this.session.run(values);
  }

  fetched(result) {
    return this.output_names.map((name) => {
      const { type, dims, data } = result[name];
      if (type === 'string') return { dtype: 'str', shape: [...dims], data: [...data] };
      return { dtype: type, shape: [...dims], data: Buffer.from(data.buffer, data.byteOffset, data.byteLength) };
    });
  }

  tensor(name, dtype, shape, data) {
    if (dtype === 'str') return new this.ort.Tensor('string', data, shape);
    const kind = ARRAYS[dtype];
    if (kind === undefined) throw new Error(`ONNX Runtime's JavaScript takes no ${dtype} (${name})`);
    const bytes = new Uint8Array(data.length);
    bytes.set(data);
    let values = new kind(bytes.buffer);
    if (dtype === 'float16' && typeof Float16Array !== 'undefined') values = new Float16Array(bytes.buffer);
    return new this.ort.Tensor(dtype, values, shape);
  }
}

exports.externalFiles = externalFiles;
exports.connect = (settings) => new Engine(settings);
