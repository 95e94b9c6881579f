// The worker's side in Node: the same frames and requests as serve.py, for runtimes of npm packages.
//
// Started as `node serve.cjs READ WRITE RUNTIME`: two pipes' numbers and the path of the runtime's module, which exports
//
//   connect(settings) -> engine      settings: library, execution_provider, options, graph_optimization, threads, ...
//   engine.describe() -> {version, execution_providers}
//   engine.close()                   where there is something to end; optional
//   engine.open(path) -> opened      with input_names, output_names (or null), input_shapes, placement
//   opened.prepare(feeds) -> f       feeds: Map of name -> {dtype, shape, data}; f runs the file
//                                    (`timed`: {wall_ns, cpu_ns} of what it returns, where it is done elsewhere)
//   opened.fetched(result) -> [...]  the outputs as {dtype, shape, data}, in order
//
// Any of them may be asynchronous. `data` is a Buffer with the numbers' little-endian bytes, or of dtype `str` an array
// of strings. No standard stream is used: a runtime may print what it likes.
'use strict';
const fs = require('node:fs');

const MAGIC = 'BXW1';
const PREAMBLE_BYTES = 16;
const LONGEST_HEADER = 1 << 26;

function readAll(handle, count) {
  const data = Buffer.alloc(count);
  for (let done = 0; done < count; ) {
    const got = fs.readSync(handle, data, done, Math.min(count - done, 1 << 24), null);
    if (got === 0) return null;
    done += got;
  }
  return data;
}

function writeAll(handle, data) {
  for (let done = 0; done < data.length; ) {
    done += fs.writeSync(handle, data, done, Math.min(data.length - done, 1 << 24));
  }
}

function texts(data) {
  const found = [];
  for (let place = 0; place < data.length; ) {
    const length = data.readUInt32LE(place);
    found.push(data.toString('utf8', place + 4, place + 4 + length));
    place += 4 + length;
  }
  return found;
}

function textBytes(strings) {
  return Buffer.concat(
    strings.map((text) => {
      const encoded = Buffer.from(text, 'utf8');
      const length = Buffer.alloc(4);
      length.writeUInt32LE(encoded.length);
      return Buffer.concat([length, encoded]);
    }),
  );
}

function readFrame(handle) {
  const preamble = readAll(handle, PREAMBLE_BYTES);
  if (preamble === null) return null;
  const length = preamble.readUInt32LE(4);
  if (preamble.toString('latin1', 0, 4) !== MAGIC || length > LONGEST_HEADER) throw new Error('expected a frame');
  const header = JSON.parse(readAll(handle, length).toString('utf8'));
  return { header, tensors: header.tensors.map((entry) => value(handle, entry)) };
}

function value(handle, { dtype, shape, bytes, items }) {
  if (dtype === 'sequence') return { dtype, items: items.map((entry) => value(handle, entry)) };
  if (dtype === 'nothing') return { dtype };
  const data = readAll(handle, bytes);
  return { dtype, shape, data: dtype === 'str' ? texts(data) : data };
}

function writeFrame(handle, header, tensors) {
  const blocks = tensors.map(({ dtype, data }) => (dtype === 'str' ? textBytes(data) : data));
  const described = tensors.map(({ dtype, shape }, index) => ({ dtype, shape, bytes: blocks[index].length }));
  const text = Buffer.from(JSON.stringify({ ...header, tensors: described }), 'utf8');
  const preamble = Buffer.alloc(PREAMBLE_BYTES);
  preamble.write(MAGIC, 'latin1');
  preamble.writeUInt32LE(text.length, 4);
  preamble.writeBigUInt64LE(BigInt(blocks.reduce((sum, block) => sum + block.length, 0)), 8);
  for (const block of [preamble, text, ...blocks]) writeAll(handle, block);
}

class Worker {
  constructor(modulePath) {
    this.modulePath = modulePath;
  }

  async answer(header, tensors) {
    switch (header.do) {
      case 'load':
        this.module = require(this.modulePath);
        return [{}, []];
      case 'connect':
        this.engine = await this.module.connect(header.settings);
        return [await this.engine.describe(), []];
      case 'open': {
        const began = process.hrtime.bigint();
        this.opened = await this.engine.open(header.path);
        const { input_names, output_names, input_shapes, placement } = this.opened;
        const load_seconds = Number(process.hrtime.bigint() - began) / 1e9;
        return [{ load_seconds, input_names, output_names, input_shapes, placement }, []];
      }
      case 'feed':
        tensors.forEach(({ dtype }, index) => {
          if (dtype !== 'sequence' && dtype !== 'nothing') return;
          const what = dtype === 'sequence' ? 'a sequence' : 'an optional value';
          throw new Error(`this runtime takes tensors only, and the input ${header.names[index]} is given ${what}`);
        });
        this.prepared = await this.opened.prepare(new Map(header.names.map((name, index) => [name, tensors[index]])));
        return [{}, []];
      default: {
        const cpu = process.cpuUsage();
        const began = process.hrtime.bigint();
        const result = await this.prepared();
        const wall_ns = Number(process.hrtime.bigint() - began);
        const used = process.cpuUsage(cpu);
        const told = result?.timed ?? { wall_ns, cpu_ns: 1000 * (used.user + used.system) };
        return [told, header.do === 'run' ? await this.opened.fetched(result) : []];
      }
    }
  }
}

async function main([read, write, modulePath]) {
  const worker = new Worker(modulePath);
  for (;;) {
    const frame = readFrame(Number(read));
    if (frame === null) return worker.engine?.close?.();
    let answer, values;
    try {
      [answer, values] = await worker.answer(frame.header, frame.tensors);
    } catch (error) {
      const said = { class: error?.name ?? 'Error', message: String(error?.message ?? error), details: String(error?.stack ?? '') };
      [answer, values] = [{ error: said }, []];
    }
    writeFrame(Number(write), answer, values);
  }
}

main(process.argv.slice(2)).then(
  () => process.exit(0),
  (error) => {
    if (error?.code !== 'EPIPE') console.error(error);
    process.exit(error?.code === 'EPIPE' ? 0 : 1);
  },
);
