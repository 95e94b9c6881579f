// Does `model.onnx` still fail? Exits 1 while it does, 0 once it is right. Needs the runtime's package only.
//
// `case.json` holds the package's name, its settings, the inputs, and the outputs to be expected (base64 of the
// little-endian bytes).
'use strict';
const fs = require('node:fs');
const path = require('node:path');

const ARRAYS = {
  float32: Float32Array,
  float64: Float64Array,
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

function values(entry) {
  const bytes = new Uint8Array(Buffer.from(entry.data, 'base64'));
  const kind = ARRAYS[entry.dtype];
  if (kind === undefined) throw new Error(`JavaScript has no array of ${entry.dtype} (${entry.name})`);
  return new kind(bytes.buffer, 0, bytes.length / kind.BYTES_PER_ELEMENT);
}

function difference(entry, tensor, rtol, atol) {
  if (tensor === undefined) return `output ${entry.name} is missing`;
  if (tensor.type !== entry.dtype) return `output ${entry.name} is ${tensor.type}, expected ${entry.dtype}`;
  if (String([...tensor.dims]) !== String(entry.shape)) {
    return `output ${entry.name} has shape [${tensor.dims}], expected [${entry.shape}]`;
  }
  const expected = values(entry);
  const differs = (one, other) => {
    if (one === other) return false;
    const [left, right] = [Number(one), Number(other)];
    if (Number.isNaN(left) && Number.isNaN(right)) return false;
    return !(Number.isFinite(left) && Number.isFinite(right) && Math.abs(left - right) <= atol + rtol * Math.abs(right));
  };
  const wrong = [...expected.keys()].filter((index) => differs(tensor.data[index], expected[index]));
  if (wrong.length === 0) return '';
  const [first] = wrong;
  return (
    `output ${entry.name}: ${wrong.length} of ${expected.length} elements differ, ` +
    `the first at ${first} (flat): ${tensor.data[first]}, expected ${expected[first]}`
  );
}

async function main() {
  const found = JSON.parse(fs.readFileSync(path.join(__dirname, 'case.json'), 'utf8'));
  const ort = require(found.settings.library);
  const isWeb = found.settings.library === 'onnxruntime-web';
  if (isWeb) ort.env.wasm.numThreads = 1;
  const versions = ort.env.versions ?? {};
  console.log(`${found.runtime} ${versions[isWeb ? 'web' : 'node'] ?? versions.common ?? ''}`);
  let results;
  try {
    const inputs = Object.fromEntries(
      found.inputs.map((entry) => [entry.name, new ort.Tensor(entry.dtype, values(entry), entry.shape)])
    );
    const session = await ort.InferenceSession.create(new Uint8Array(fs.readFileSync(path.join(__dirname, 'model.onnx'))), {
      executionProviders: [{ name: found.settings.execution_provider || (isWeb ? 'wasm' : 'cpu'), ...found.settings.options }],
      graphOptimizationLevel: found.settings.graph_optimization,
      intraOpNumThreads: 1,
    });
    results = await session.run(inputs);
  } catch (error) {
    console.log(`fails: ${error.message}`);
    return 1;
  }
  for (const entry of found.outputs) {
    const words = difference(entry, results[entry.name], found.rtol, found.atol);
    if (words) {
      console.log(`wrong: ${words}`);
      return 1;
    }
  }
  console.log('right: every output is as expected');
  return 0;
}

main().then((code) => process.exit(code));
