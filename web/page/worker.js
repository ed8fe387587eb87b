// Computes beside the page, so that the page stays alive.

import init, { Classifier, networks } from "./fewshot_web.js";

// After such an error nothing is known of what is in memory.
class Fatal extends Error {}

// Called by the program where it panics.
globalThis.fail = (message) => { throw new Fatal(message); };

const MIB = 1 << 20;
let program;
let classifier;

const calls = {
  begin: async () => {
    try {
      program = await init();
    } catch (error) {
      throw new Fatal(`the program did not start in this browser: ${error.message}`);
    }
    classifier = new Classifier();
    return networks();
  },
  load: async (network, file) => classifier.load(network, await bytes(file), file.name),
  open: async (file) => classifier.open(await bytes(file), file.name),
  restore: async (copy) => classifier.restore(await bytes(copy)),
  snapshot: () => classifier.snapshot(),
  clear: () => classifier.clear(),
  add: async (name, file) => classifier.add(name, await bytes(file), file.name),
  removeClass: (name) => classifier.remove_class(name),
  removeExample: (row) => classifier.remove_example(row),
  describe: () => classifier.describe(),
  thumbnail: (row) => classifier.thumbnail(row),
  predict: async (file) => classifier.predict(await bytes(file), file.name),
  save: () => classifier.save(),
};

// The content of a file. What the browser refuses to read, or to hold, is an ordinary error.
async function bytes(file) {
  try {
    return new Uint8Array(await file.arrayBuffer());
  } catch (error) {
    throw new Error(`${file.name} was not read: ${error.message}`);
  }
}

// An allocation that is refused ends in the instruction `unreachable`; a panic says more, by `fail`.
function told(error) {
  if (error instanceof WebAssembly.RuntimeError && error.message.includes("unreachable")) {
    const used = Math.round((program?.memory.buffer.byteLength ?? 0) / MIB);
    return `the browser gives no more memory than the ${used} MiB that are in use: close other pages, or take smaller files`;
  }
  return error.message || String(error);
}

// One call after the other, in the order in which they came.
let last = Promise.resolve();
onmessage = ({ data: { id, call, values } }) => {
  last = last.then(async () => {
    try {
      const result = await calls[call](...values);
      postMessage({ id, result });
    } catch (error) {
      postMessage({ id, error: told(error), fatal: error.constructor !== Error });
    }
  });
};
