const $ = (selector, within = document) => within.querySelector(selector);

// The weights that are loaded and a copy of the examples: what a new worker goes on with, should this one fail.
let weights = null;
let saved = null;
// The name of the model's file; the model as the worker describes it; its file that waits for the weights of its network.
let name = "model.fewshot";
let model = null;
let waiting = null;
let downloaded = true;
let published = [];
let thumbnails = [];

// The wish of the address for what computes, and the reason against the graphics processor.
const wish = new URLSearchParams(location.search).get("compute");
let reason;

class Failed extends Error {}

// A worker and its calls that are not answered yet.
let worker;
let calls;
let next = 0;

function start() {
  const own = new Map();
  worker = new Worker("worker.js", { type: "module" });
  calls = own;
  worker.onmessage = ({ data: { id, result, error, fatal, compute } }) => {
    if (compute) return describeCompute(compute);
    const { resolve, reject } = own.get(id);
    own.delete(id);
    if (error === undefined) return resolve(result);
    reject(fatal ? new Failed(error) : new Error(error));
  };
  worker.onerror = (event) => {
    event.preventDefault?.();
    const error = new Failed(event.message || "the program was not loaded");
    for (const { reject } of own.values()) reject(error);
    own.clear();
  };
}

function ask(call, ...values) {
  return new Promise((resolve, reject) => {
    const id = next++;
    calls.set(id, { resolve, reject });
    worker.postMessage({ id, call, values });
  });
}

// Takes a new worker in place of one that failed, with the weights and the model as they were before the call.
async function restart() {
  worker.terminate();
  for (const { reject } of calls.values()) reject(new Error("not done: the program was started again"));
  start();
  await ask("begin", wish, reason);
  if (weights) await ask("load", weights.network, weights.file);
  if (saved) await ask("restore", new Blob([saved]));
}

// The work in hand. Pieces of it follow one another, so that a restart is between two.
let work = Promise.resolve();
let left = 0;

// Runs what may be refused when all before is done, and says so.
function attempt(run, told = tell) {
  left += 1;
  $("#progress").hidden = false;
  $("#progress").textContent = "Computing …";
  work = work.then(async () => {
    try {
      await run();
    } catch (error) {
      told(error.message);
      if (error instanceof Failed) await restart().catch((again) => tell(`${error.message}\nnot started again: ${again.message}`));
    }
    left -= 1;
    $("#progress").hidden = left === 0;
  });
  return work;
}

function tell(problem) {
  $("#problem").textContent = problem;
  $("#problem").hidden = !problem;
}

function describeCompute(compute) {
  reason = compute.reason;
  $("#compute").textContent = compute.adapter ? `Computes on the graphics processor by WebGPU (${compute.adapter})` :
    `Computes on the processor: ${reason}`;
}

function plural(count, what) {
  return `${count} ${what}${count === 1 ? "" : "s"}`;
}

// Shows the model as it is, and keeps a copy of its examples.
async function refresh() {
  const described = JSON.parse(await ask("describe"));
  saved = await ask("snapshot");
  thumbnails.forEach((url) => url && URL.revokeObjectURL(url));
  thumbnails = [];
  for (const row of described.model?.pictures ?? []) {
    thumbnails[row] = URL.createObjectURL(new Blob([await ask("thumbnail", row)], { type: "image/jpeg" }));
  }
  show(described);
  if (model?.fault) tell(model.fault);
}

function show(described) {
  model = described.model;
  const classes = model?.classes ?? [];
  const accuracy = model?.left_out_accuracy == null ? "" :
    `, ${model.left_out_accuracy.toFixed(1)} % right of ${plural(model.left_out, "example")} left out in turn`;
  const loaded = described.network ? `${described.network} is loaded: add pictures of two classes or more` :
    "Everything is computed in this browser: no picture leaves it.";
  $("#about").textContent = model ? `${model.method} on ${model.backbone ?? `embeddings of ${model.length} values`}${accuracy}` : loaded;
  $("#file").textContent = model ? name : "fewshot";
  document.title = model ? `${name} – fewshot` : "fewshot";
  document.body.classList.toggle("no-pictures", model !== null && model.backbone === null);
  document.body.dataset.network = described.network ?? "";
  $("#download").hidden = $("#new-model").hidden = !model;
  $("#classes").replaceChildren(...classes.map(card));
}

// The small picture of an example, or its number where the model's file has none.
function shown(row) {
  if (!thumbnails[row]) return document.createTextNode(`#${row}`);
  const image = new Image();
  image.src = thumbnails[row];
  image.alt = `example ${row}`;
  return image;
}

async function changed() {
  downloaded = false;
  await refresh();
}

function card({ class: own, examples }) {
  const card = $("#class").content.cloneNode(true);
  $("li", card).dataset.class = own;
  $("h3", card).textContent = own;
  $(".count", card).textContent = plural(examples.length, "example");
  $(".remove", card).onclick = () => {
    if (!confirm(`Remove ${own} with ${plural(examples.length, "example")}?`)) return;
    attempt(async () => {
      await ask("removeClass", own);
      await changed();
    });
  };
  $(".examples", card).append(...examples.map((row) => {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.title = `Remove example ${row}`;
    button.append(shown(row));
    button.onclick = () => attempt(async () => {
      await ask("removeExample", row);
      await changed();
    });
    item.append(button);
    return item;
  }));
  takes($(".drop", card), (files) => teach(own, files));
  return card;
}

// Adds pictures to a class, one after the other; those that are refused are named, the others stay.
function teach(to, files) {
  tell("");
  const refused = [];
  return attempt(async () => {
    for (const file of files) {
      try {
        await ask("add", to, file);
      } catch (error) {
        refused.push(`${file.name}: ${error.message}`);
        if (error instanceof Failed) await restart();
        continue;
      }
      // What is learned of a picture survives the failure at another.
      saved = await ask("snapshot");
    }
    await changed();
    if (refused.length) tell(refused.join("\n"));
  });
}

function classify(file) {
  const answer = $("#answer").content.cloneNode(true).firstElementChild;
  $("img", answer).src = URL.createObjectURL(file);
  $(".file", answer).textContent = file.name;
  $(".correct", answer).hidden = true;
  $("#answers").prepend(answer);
  const refuse = (problem) => { $(".verdict", answer).textContent = problem; };
  return attempt(async () => {
    const begin = performance.now();
    const { classes, known, nearest } = JSON.parse(await ask("predict", file));
    answer.dataset.milliseconds = performance.now() - begin;
    answer.dataset.classes = JSON.stringify(classes);
    $(".verdict", answer).textContent = known !== null && known < 0.5 ? "none of these classes" : classes[0].class;
    $(".bars", answer).append(...classes.slice(0, 5).map(bar));
    $(".nearest", answer).append("Nearest examples: ");
    nearest.forEach((row, place) => $(".nearest", answer).append(place ? ", " : "", shown(row).cloneNode(), ` ${classOf(row)}`));
    $("select", answer).append(...model.classes.map(({ class: own }) => new Option(own, own, false, own === classes[0].class)));
    $(".correct", answer).hidden = false;
    $(".correct", answer).onsubmit = (event) => {
      event.preventDefault();
      teach($("select", answer).value, [file]);
    };
  }, refuse);
}

function classOf(row) {
  return model.classes.find(({ examples }) => examples.includes(row)).class;
}

function bar({ class: own, probability }) {
  const row = document.createElement("div");
  row.className = "bar";
  const label = document.createElement("span");
  label.textContent = own;
  const value = document.createElement("span");
  value.textContent = `${(100 * probability).toFixed(1)} %`;
  const meter = document.createElement("meter");
  meter.value = probability;
  row.append(label, meter, value);
  return row;
}

// Lets a place take files that are dropped on it or chosen.
function takes(place, take) {
  const input = $("input", place);
  input.onchange = () => {
    const files = [...input.files];
    input.value = "";
    take(files);
  };
  place.ondragover = (event) => {
    event.preventDefault();
    place.classList.add("over");
  };
  place.ondragleave = () => place.classList.remove("over");
  place.ondrop = (event) => {
    event.preventDefault();
    place.classList.remove("over");
    take([...event.dataTransfer.files]);
  };
}

// Loads weights, and then the model that waits for them.
function load(file) {
  tell("");
  const network = $("#network").value;
  return attempt(async () => {
    await ask("load", network, file);
    weights = { network, file };
    const opening = waiting;
    waiting = null;
    if (opening) await open(opening);
    await refresh();
  });
}

async function open(file) {
  try {
    await ask("open", file);
  } catch (error) {
    // The weights that it needs are chosen next.
    const needed = published.find(({ name: own }) => error.message.includes(`the weights of ${own} with`));
    if (needed) {
      waiting = file;
      $("#network").value = needed.name;
      describeNetwork();
    }
    throw error;
  }
  name = file.name;
  downloaded = true;
  $("#answers").replaceChildren();
}

const mayDiscard = () => downloaded || !model || confirm(`${name} has changes that were not downloaded: go on without them?`);

function describeNetwork() {
  const { network, licence, page, file } = published.find(({ name: own }) => own === $("#network").value);
  const link = document.createElement("a");
  link.href = file?.url ?? page;
  link.textContent = file?.url ?? page;
  const size = file ? `, ${file.megabytes} MB${file.within ? " in an archive" : ""}` : "";
  $("#published").replaceChildren(`${network}, ${licence}${size}: `, link);
}

$("#network").onchange = describeNetwork;
takes($("#weights"), ([file]) => file && load(file));
takes($("#open"), ([file]) => {
  if (!file || !mayDiscard()) return;
  tell("");
  attempt(async () => {
    await open(file);
    await refresh();
  });
});
takes($("#unnamed"), (files) => {
  tell("");
  files.forEach(classify);
});
takes($("#new .drop"), async (files) => {
  const own = $("#name").value.trim();
  if (!own) {
    tell("Name the class first.");
    $("#name").focus();
    return;
  }
  await teach(own, files);
  $("#name").value = "";
});
$("#new").onsubmit = (event) => event.preventDefault();
const link = document.createElement("a");
$("#download").onclick = () => attempt(async () => {
  URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(new Blob([await ask("save")]));
  link.download = name;
  link.click();
  downloaded = true;
});
$("#new-model").onclick = () => {
  if (!mayDiscard()) return;
  attempt(async () => {
    await ask("clear");
    name = "model.fewshot";
    downloaded = true;
    $("#answers").replaceChildren();
    await refresh();
  });
};
addEventListener("beforeunload", (event) => {
  if (!downloaded && model) event.preventDefault();
});
// A file dropped beside all places would replace the page.
for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => event.preventDefault());

attempt(async () => {
  start();
  published = JSON.parse(await ask("begin", wish));
  $("#network").replaceChildren(...published.map(({ name: own }) => new Option(own, own)));
  $("#network").value = "efficientnet-lite0";
  describeNetwork();
  document.body.dataset.ready = "true";
});
// Without a connection, the page is taken from the cache. Where the browser has none for it, it needs its server.
navigator.serviceWorker?.register("offline.js").catch(() => {});
