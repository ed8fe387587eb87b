// Networks on the graphics processor, by WebGPU: a second program beside that of the worker, which computes alone once this one
// fails.

let gpu = null;
// The networks that it has, by their numbers.
const networks = new Map();
let announce;
let fail;
const failure = new Promise((_, reject) => {
  fail = (reason) => reject(new Error(reason));
});
failure.catch(({ message }) => end(message));

// Called by the program where it panics, and where the device is lost or refuses what nobody awaits.
globalThis.failGpu = (reason) => fail(reason);

// Whatever stops the program stops it in a promise of its own, where nobody else would catch it.
let begun = false;
addEventListener("error", (event) => {
  if (!begun) return;
  event.preventDefault();
  fail(event.message);
});

function end(reason) {
  if (!gpu) return;
  gpu = null;
  networks.clear();
  announce({ reason: failureText(reason) });
}

const failureText = (reason) => `WebGPU failed: ${reason.trim().replace(/\s+/g, " ").replace(/\.$/, "")}`;

// The result of work on the graphics processor; undefined, where that is not in use or fails.
async function attempt(work) {
  if (!gpu) return undefined;
  try {
    return await Promise.race([work(), failure]);
  } catch ({ message }) {
    end(message);
    return undefined;
  }
}

// The adapter's name, or the reason against it. `wish` is "cpu", "gpu" or neither; `formerReason` the reason from before a restart.
async function choose(wish, formerReason) {
  if (formerReason) return { reason: formerReason };
  if (wish === "cpu") return { reason: "the address asks for it" };
  if (!navigator.gpu) return { reason: "this browser has no WebGPU" };
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) return { reason: "WebGPU has no graphics processor here" };
  const { vendor, architecture, description, isFallbackAdapter } = adapter.info;
  if (isFallbackAdapter && wish !== "gpu") return { reason: "WebGPU has only software here" };
  // CubeCL times by it.
  if (!adapter.features.has("timestamp-query")) return { reason: "WebGPU has no timestamps here" };
  return { adapter: description || `${vendor} ${architecture}`.trim() || "of an unknown make" };
}

// Takes the graphics processor, if there is one, and tells by `tell` what computes: once here, and again should it fail.
export async function start(wish, formerReason, tell) {
  announce = tell;
  let choice;
  try {
    choice = await choose(wish, formerReason);
    if (choice.adapter) {
      const { default: init, Gpu } = await import("./fewshot_web_gpu.js");
      await init();
      begun = true;
      gpu = await Promise.race([Gpu.open(), failure]);
    }
  } catch ({ message }) {
    choice = { reason: failureText(message) };
  }
  announce(choice);
}

export const inUse = () => gpu !== null;

// Loads the network of this number from the content of its weights, whose network is named, or of a model.
export function load(number, network, content, file) {
  return attempt(async () => {
    const loaded = network ? gpu.load(network, content, file) : gpu.load_from_model(content, file);
    networks.set(number, await loaded);
  });
}

// Forgets all networks but those of these numbers.
export function keep(numbers) {
  for (const [number, network] of networks) {
    if (numbers.includes(number)) continue;
    networks.delete(number);
    network.free();
  }
}

// The embedding of an image that is prepared for the network of this number.
export function embed(number, image) {
  return attempt(async () => {
    const network = networks.get(number);
    if (!network) throw new Error(`network ${number} is not loaded`);
    return network.embed(image);
  });
}
