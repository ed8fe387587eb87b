"use strict";

const $ = (selector, within = document) => within.querySelector(selector);
let model = { classes: [], pictures: [] };
// The path of the model, below which its routes are.
let base = "v1";

function tell(problem) {
  $("#problem").textContent = problem;
  $("#problem").hidden = !problem;
}

// What the server answers to a request, or an error with its words.
async function ask(method, path, body) {
  const answer = await fetch(path, { method, body });
  const text = await answer.text();
  if (answer.ok) return JSON.parse(text);
  let why = text;
  try { why = JSON.parse(text).error; } catch { /* Not all refusals are JSON. */ }
  throw new Error(why || `${answer.status} ${answer.statusText}`);
}

async function refresh() {
  show(await ask("GET", `${base}/model`));
}

// Shows the model of the address, or the first one; of several the visitor chooses.
async function begin() {
  const names = (await ask("GET", "v1/models")).models.map(({ model: name }) => name);
  const choice = $("#choice select");
  choice.replaceChildren(...names.map((name) => new Option(name, name)));
  $("#choice").hidden = names.length < 2;
  const address = (name) => `#${encodeURIComponent(name)}`;
  const choose = async (name) => {
    base = `v1/models/${encodeURIComponent(name)}`;
    choice.value = name;
    $("#answers").replaceChildren();
    tell("");
    await refresh();
  };
  choice.onchange = () => {
    history.replaceState(null, "", address(choice.value));
    attempt(() => choose(choice.value));
  };
  await choose(names.find((name) => address(name) === location.hash) ?? names[0]);
}

// Runs what may be refused, and says so.
async function attempt(run) {
  try {
    await run();
  } catch (error) {
    tell(error.message);
  }
}

const classPath = (name) => `${base}/classes/${encodeURIComponent(name)}`;
const pictureOf = (number) => (model.pictures.includes(number) ? `${base}/examples/${number}/picture` : null);

function plural(count, what) {
  return `${count} ${what}${count === 1 ? "" : "s"}`;
}

// The picture of an example, or its number where the model's file has none.
function shown(number) {
  const path = pictureOf(number);
  if (!path) return document.createTextNode(`#${number}`);
  const image = new Image();
  image.src = path;
  image.alt = `example ${number}`;
  return image;
}

function show(found) {
  model = found;
  document.body.classList.toggle("read-only", model.read_only);
  const takesPictures = model.backbone !== null;
  document.body.classList.toggle("no-pictures", !takesPictures);
  $("#vectors").hidden = takesPictures;
  document.title = `${model.file} – fewshot`;
  $("#file").textContent = model.file;
  const accuracy = model.left_out_accuracy === null ? "" :
    `, ${model.left_out_accuracy} % right of ${plural(model.left_out, "example")} left out in turn`;
  const source = takesPictures ? model.backbone : `embeddings of ${model.length} values`;
  $("#about").textContent = `${model.method} on ${source}${accuracy}`;
  $("#download").href = `${base}/model/file`;
  $("#download").hidden = model.classes.length === 0;
  $("#classes").replaceChildren(...model.classes.map(card));
}

function card({ class: name, examples }) {
  const card = $("#class").content.cloneNode(true);
  $("li", card).dataset.class = name;
  $("h3", card).textContent = name;
  $(".count", card).textContent = plural(examples.length, "example");
  $(".remove", card).onclick = () => attempt(async () => {
    if (confirm(`Remove ${name} with ${plural(examples.length, "example")}?`)) show(await ask("DELETE", classPath(name)));
  });
  $(".examples", card).append(...examples.map((number) => {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.title = `Remove example ${number}`;
    button.append(shown(number));
    button.onclick = () => attempt(async () => show(await ask("DELETE", `${base}/examples/${number}`)));
    item.append(button);
    return item;
  }));
  takes($(".drop", card), (files) => teach(name, files));
  return card;
}

// Adds pictures to a class, one after the other; those that are refused are named, the others stay.
async function teach(name, files) {
  tell("");
  const refused = [];
  // Of the model that is shown now, whichever is chosen meanwhile.
  const path = `${classPath(name)}/examples`;
  for (const file of files) {
    try {
      await ask("POST", path, file);
    } catch (error) {
      refused.push(`${file.name}: ${error.message}`);
    }
  }
  if (refused.length) tell(refused.join("\n"));
  await attempt(refresh);
}

async function classify(file) {
  const answer = $("#answer").content.cloneNode(true).firstElementChild;
  $("img", answer).src = URL.createObjectURL(file);
  $(".file", answer).textContent = file.name;
  $(".correct", answer).hidden = true;
  $("#answers").prepend(answer);
  try {
    const found = await ask("POST", `${base}/predict?top=5&unknown=0.5`, file);
    $(".verdict", answer).textContent = found.class ?? "none of these classes";
    $(".bars", answer).append(...found.classes.map(bar));
    $(".nearest", answer).append("Nearest examples: ");
    found.nearest.forEach(({ class: name, example }, place) => {
      $(".nearest", answer).append(place ? ", " : "", shown(example), ` ${name}`);
    });
    const options = model.classes.map(({ class: name }) => new Option(name, name, false, name === found.classes[0].class));
    $("select", answer).append(...options);
    $(".correct", answer).hidden = false;
    $(".correct", answer).onsubmit = (event) => {
      event.preventDefault();
      teach($("select", answer).value, [file]);
    };
  } catch (error) {
    $(".verdict", answer).textContent = error.message;
  }
}

function bar({ class: name, probability }) {
  const row = document.createElement("div");
  row.className = "bar";
  const label = document.createElement("span");
  label.textContent = name;
  const value = document.createElement("span");
  value.textContent = `${(100 * probability).toFixed(1)} %`;
  const meter = document.createElement("meter");
  meter.value = probability;
  row.append(label, meter, value);
  return row;
}

// Lets a place take pictures that are dropped on it or chosen.
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

takes($("#unnamed"), (files) => {
  tell("");
  files.forEach(classify);
});
takes($("#new .drop"), async (files) => {
  const name = $("#name").value.trim();
  if (!name) {
    tell("Name the class first.");
    $("#name").focus();
    return;
  }
  await teach(name, files);
  $("#name").value = "";
});
$("#new").onsubmit = (event) => event.preventDefault();
// A picture dropped beside all places would replace the page.
for (const kind of ["dragover", "drop"]) document.addEventListener(kind, (event) => event.preventDefault());
attempt(begin);
