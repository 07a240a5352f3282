// The reference: Swagger UI, with our own head, samples and table of contents.

// Read now: Swagger UI rewrites the URL when it starts.
const fragment = location.hash.slice(1);

let language = "curl";

function chooseLanguage({ target }) {
  language = target.value;
  for (const choice of document.querySelectorAll(`.samples [value="${language}"]`)) {
    choice.checked = true;
  }
}

// The Clipboard API exists over HTTPS only, this command over plain HTTP, too.
function copy({ currentTarget: button }) {
  getSelection().selectAllChildren(button.parentElement.querySelector("code"));
  const outcome = document.execCommand("copy") ? "Copied" : "Selected: press Ctrl+C";
  button.nextElementSibling.textContent = outcome;
  setTimeout(() => { button.nextElementSibling.textContent = ""; }, 3000);
}

// What Swagger UI lacks: a head with an <h1>, the base URL, samples, fields, and words for limits.
const additions = ({ React: { createElement: make, Fragment }, specSelectors }) => {
  const base = () => new URL(specSelectors.servers().first().get("url"), location).href;
  const copied = (what) => [
    make("button", { key: "copy", type: "button", className: "copy", onClick: copy,
      "aria-label": `Copy the ${what}` }, "Copy"),
    make("output", { key: "copied" }),
  ];
  const sample = ([name, text]) =>
    make("div", { key: name, className: "sample", "data-language": name },
      make("pre", { tabIndex: 0 }, make("code", null, text)), copied(`${LANGUAGES[name]} sample`));
  const choice = ([value, name], group) =>
    make("label", { key: value },
      make("input", { type: "radio", name: group, value, defaultChecked: value === language,
        onChange: chooseLanguage }), name);
  const samples = ([path, method]) => {
    const operation = specSelectors.specJson().getIn(["paths", path, method]).toJS();
    return make("fieldset", { className: "samples" },
      make("legend", null, "Sample"),
      Object.entries(LANGUAGES).map((entry) => choice(entry, operation.operationId)),
      Object.entries(writeSamples(operation, method, base() + path)).map(sample));
  };
  const field = ([name, { description, enum: values, format, type }], required) =>
    make("div", { key: name },
      make("dt", null, make("code", null, name), " ", values?.join(" | ") ?? format ?? type,
        required ? "" : ", optional"),
      make("dd", null, description));
  const fields = ({ items, ...schema }) => {
    const { title, properties, required } = items ?? schema;
    return title !== "Error" && make("dl", { className: "fields" },
      Object.entries(properties).map((entry) => field(entry, required.includes(entry[0]))));
  };
  const limits = { minimum: "at least", maximum: "at most" };

  return {
    statePlugins: { layout: { wrapSelectors: {
      // The first operation is open until the reader closes it.
      isShown: (original) => (state, shown, otherwise) =>
        original(shown, otherwise || [shown].flat().join() === "operations,Pets,listPets"),
    } } },
    wrapComponents: {
      // Swagger UI shows the key while it is typed; its field says neither what it is nor its name.
      Input: (Original) => (props) =>
        make(Original, props.id === "auth-bearer-value" ? { ...props, type: "password" } : props),
      // The guide has the fields of an error; those of other bodies need no click.
      modelExample: (Original) => (props) =>
        make("div", null, make(Original, props), fields(props.schema.toJS?.() ?? props.schema)),
      // Swagger UI would print JSON anew, and so round its numbers; text of no type it leaves alone.
      responseBody: (Original) => (props) => make(Original, { ...props, contentType: "" }),
      parameters: (Original) => (props) =>
        make(Fragment, null, samples(props.pathMethod), make(Original, props)),
    },
    components: {
      // A pattern is explained in the description of its parameter.
      ParameterExt: ({ xKey, xVal }) => xKey in limits &&
        make("div", { className: "parameter__extension" }, limits[xKey], " ", xVal),
      authorizeOperationBtn: ({ isAuthorized, onClick, getComponent }) =>
        make("button", { className: "authorization__btn", onClick },
          isAuthorized ? "Authorized" : "Authorize",
          make(getComponent(`${isAuthorized ? "Lock" : "Unlock"}AuthOperationIcon`, true))),
      OAS31Info: ({ getComponent }) => {
        const info = specSelectors.info();
        const Markdown = getComponent("Markdown", true);
        return make("header", { className: "info" },
          make("h1", { id: "top" }, info.get("title"),
            make("span", { className: "version" }, info.get("version"))),
          make("p", null, "Base URL ", make("code", null, base()), " ", copied("base URL")),
          make(Markdown, { source: info.get("description") }),
          make("h2", null, "Operations"),
          make("p", null, "Authorize with your key, then send requests from this page. The ",
            "samples read the key from the environment variable ", make("code", null, "KEY"),
            ". For your own tools, use the ",
            make("a", { href: specSelectors.url() }, "OpenAPI document"), "."));
      },
    },
  };
};

SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  onComplete: fillContents,
  plugins: [additions],
  showCommonExtensions: true,
  tryItOutEnabled: true,
  validatorUrl: null,
});

// The headings of the guide, then the operations by group; deprecated ones are marked.
function fillContents() {
  const nav = document.getElementById("contents");
  const contents = document.createElement("details");
  contents.append(Object.assign(document.createElement("summary"), { textContent: "Contents" }));
  nav.append(contents);
  const wide = matchMedia("(min-width: 1000px)");
  const unfold = () => { contents.open = wide.matches; };
  wide.addEventListener("change", unfold);
  unfold();
  const entry = (kind, text, href) => {
    const link = document.createElement("a");
    link.className = `${kind} noZensmooth`; // otherwise Swagger UI scrolls slowly
    link.textContent = text;
    link.href = href;
    link.addEventListener("click", unfold);
    contents.append(link);
    return link;
  };
  entry("home", document.querySelector("h1").firstChild.textContent, "#top");
  for (const heading of document.querySelectorAll(".info h2")) {
    heading.id = heading.textContent.toLowerCase().replaceAll(" ", "-");
    entry("section", heading.textContent, `#${heading.id}`);
  }
  for (const code of document.querySelectorAll(".info pre")) code.tabIndex = 0; // keys can scroll it
  for (const part of document.querySelectorAll(".opblock-tag, .opblock")) {
    if (part.matches(".opblock-tag")) {
      entry("group", part.dataset.tag, `#${part.id}`);
      continue;
    }
    const find = (css) => part.querySelector(css);
    const summary = find(".opblock-summary-description").textContent;
    const link = entry("operation", summary, `#${part.id}`);
    if (part.matches(".opblock-deprecated")) {
      link.classList.add("deprecated");
      link.append(" (deprecated)");
    }
    link.dataset.method = find(".opblock-summary-method").textContent;
    link.addEventListener("click", (event) => {
      event.preventDefault();
      if (!part.matches(".is-open")) find(".opblock-summary-control").click();
      setTimeout(() => part.scrollIntoView(), 100); // once it has opened
    });
  }
  document.getElementById(fragment)?.scrollIntoView();
}

// Swagger UI's key dialog closes by its buttons only.
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") document.querySelector(".modal-ux .close-modal")?.click();
});
