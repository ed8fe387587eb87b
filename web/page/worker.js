// Computes beside the page, so that the page stays alive.

import init, { Classifier, Photo, networks } from "./fewshot_web.js";
import * as gpu from "./gpu.js";

// After such an error nothing is known of what is in memory.
class Fatal extends Error {}

// Called by the program where it panics.
globalThis.fail = (message) => { throw new Fatal(message); };

const MIB = 1 << 20;
let program;
let classifier;

const calls = {
  begin: async (wish, formerReason) => {
    try {
      program = await init();
    } catch (error) {
      throw new Fatal(`the program did not start in this browser: ${error.message}`);
    }
    classifier = new Classifier();
    await gpu.start(wish, formerReason, (compute) => postMessage({ compute }));
    return networks();
  },
  load: async (network, file) => {
    const content = await bytes(file);
    classifier.load(network, content, file.name);
    await gpu.load(classifier.loaded_network(), network, content, file.name);
    prune();
  },
  open: async (file) => {
    const content = await bytes(file);
    classifier.open(content, file.name);
    await loadOwn(content, file.name);
  },
  restore: async (copy) => {
    const content = await bytes(copy);
    classifier.restore(content);
    await loadOwn(content, "the copy of the model");
  },
  snapshot: () => classifier.snapshot(),
  clear: () => classifier.clear(),
  add: (name, file) => withEmbedding(file, (photo, embedding) => classifier.add(name, photo, embedding)),
  removeClass: (name) => classifier.remove_class(name),
  removeExample: (row) => classifier.remove_example(row),
  describe: () => classifier.describe(),
  thumbnail: (row) => classifier.thumbnail(row),
  predict: (file) => withEmbedding(file, (photo, embedding) => classifier.predict(photo, embedding)),
  save: () => classifier.save(),
};

// Loads the network that a model has in its file.
async function loadOwn(content, file) {
  const number = classifier.embedding_network();
  if (number !== undefined && number !== classifier.loaded_network()) await gpu.load(number, null, content, file);
  prune();
}

// Frees networks that are not in use any more.
function prune() {
  gpu.keep([classifier.embedding_network(), classifier.loaded_network()]);
}

// Uses a picture with its embedding by the graphics processor, if that is in use.
async function withEmbedding(file, use) {
  const photo = new Photo(await bytes(file), file.name);
  let embedding;
  try {
    const network = classifier.embedding_network();
    if (gpu.inUse() && network !== undefined) embedding = await gpu.embed(network, classifier.prepare(photo));
  } catch (error) {
    photo.free();
    throw error;
  }
  return use(photo, embedding);
}

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
