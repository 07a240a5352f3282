// What the page does beyond HTML: it fills in the base URL, opens and copies, and sends requests.

const root = document.documentElement;
const server = new URL(root.dataset.server, location).href;
const find = (css, within = document) => within.querySelector(css);
for (const name of document.querySelectorAll(".server")) name.textContent = server;

// The Clipboard API exists over HTTPS only, this command over plain HTTP, too.
for (const pre of document.querySelectorAll("pre")) {
  const [box, button, outcome] = ["div", "button", "output"].map((name) => document.createElement(name));
  box.className = `code ${pre.className}`;
  button.className = "copy";
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", () => {
    getSelection().selectAllChildren(find("code", pre));
    outcome.textContent = document.execCommand("copy") ? "Copied" : "Selected: press Ctrl+C";
    setTimeout(() => { outcome.textContent = ""; }, 3000);
  });
  pre.replaceWith(box);
  box.append(pre, button, outcome);
}

// The contents are folded where they would be above the page, not beside it.
const contents = find("nav details");
const wide = matchMedia("(min-width: 900px)");
const fold = () => { contents.open = wide.matches; };
wide.addEventListener("change", fold);
fold();

// What each entry of the contents leads to: a part of the page that ends where the next begins.
const links = [...document.querySelectorAll("nav a")];
const parts = links.map((link) => find(link.hash));

const words = (text) => text.toLowerCase().replace(/\s+/g, " ");
find("#search").addEventListener("input", ({ target: { value } }) => {
  contents.open = true;
  links.forEach((link, i) => {
    const range = new Range();
    range.selectNode(parts[i]);
    if (parts[i + 1]) range.setEndBefore(parts[i + 1]);
    link.hidden = !words(`${range}`).includes(words(value).trim());
  });
});

// The current entry is the last one whose part has reached the upper third of the window.
function mark() {
  const current = parts.findLastIndex((part) => part.getBoundingClientRect().top < innerHeight / 3);
  links.forEach((link, i) => { link.ariaCurrent = i === current || null; });
}
addEventListener("scroll", mark);
mark();

// Show the operation of a URL such as /docs#placeOrder; once it was #/Store/placeOrder.
function show() {
  const operation = document.getElementById(location.hash.split(/[#/]/).pop());
  if (!operation?.matches("details")) return;
  operation.open = true;
  operation.scrollIntoView();
}
addEventListener("hashchange", show);
show();

const commands = new WeakMap(); // of each form: returns its command, with the key or without
function writeCommand(form) {
  const button = find(".reveal", form);
  const shown = button.ariaPressed === "true";
  find("code", button.previousElementSibling).textContent = commands.get(form)(shown);
}

document.addEventListener("click", ({ target }) => {
  const link = target.closest("nav a");
  if (link) fold();
  if (link?.hash === location.hash) show();
  if (target.matches(".reveal")) {
    target.ariaPressed = String(target.ariaPressed !== "true");
    writeCommand(target.form);
  }
});

// A language is chosen for all operations at once.
document.addEventListener("change", ({ target: { type, value } }) => {
  if (type !== "radio") return;
  for (const choice of document.querySelectorAll(`[type=radio][value=${value}]`)) choice.checked = true;
});

document.addEventListener("submit", (event) => {
  event.preventDefault();
  if (event.target.matches(".try")) send(event.target);
});

// Send the request of a form, its body as it was typed; show the response as it was received.
async function send(form) {
  const { method, path } = form.dataset;
  const key = find("#key").value;
  const query = new URLSearchParams();
  const headers = {};
  let url = server + path;
  let body;
  for (const { name, value: given, dataset: { in: where } } of form.elements) {
    const value = given || (name === "Idempotency-Key" && `${crypto.getRandomValues(new Uint32Array(4))}`);
    if (where === "path") url = url.replace(`{${name}}`, encodeURIComponent(value));
    if (where === "query" && value) query.append(name, value);
    if (where === "header" && value) headers[name] = value;
    if (where === "body") [body, headers["Content-Type"]] = [value, "application/json"];
  }
  if (`${query}`) url += `?${query}`;
  const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  commands.set(form, (shown) => [
    `curl -i -X ${method} ${quote(url)}`,
    key && (shown ? `-H ${quote(`Authorization: Bearer ${key}`)}` : `-H "Authorization: Bearer $KEY"`),
    ...Object.entries(headers).map((header) => `-H ${quote(header.join(": "))}`),
    body !== undefined && `--data-raw ${quote(body)}`,
  ].filter(Boolean).join(" \\\n  "));
  writeCommand(form);
  const status = find(".status", form);
  const result = find(".result", form);
  status.textContent = "Sending";
  result.hidden = true;
  const started = performance.now();
  try {
    const authorization = key && { Authorization: `Bearer ${key}` };
    const response = await fetch(url, { method, body, headers: { ...authorization, ...headers } });
    find("code", result).textContent = await response.text();
    find(".headers", result).textContent = [...response.headers].map((line) => line.join(": ")).join("\n");
    const duration = Math.round(performance.now() - started);
    const hint = response.status === 401 ? " The field for the API key is at the top of the page." : "";
    const shown = `${response.status} ${response.statusText}`.trim(); // HTTP/2 has no such text
    status.textContent = `${shown}, ${duration} ms.${hint}`;
    result.hidden = false;
  } catch (error) {
    status.textContent = `No response: ${error.message}`;
  }
}
