// The reference: Swagger UI, with our own head and table of contents.

// Read now: Swagger UI rewrites the URL when it starts.
const fragment = location.hash.slice(1);

// Swagger UI's own head has no <h1> and no heading for the operations.
const head = ({ React: { createElement: make } }) => ({
  wrapComponents: {
    // Swagger UI shows the key while it is typed; its field says neither what it is nor its name.
    Input: (Original) => (props) =>
      make(Original, props.id === "auth-bearer-value" ? { ...props, type: "password" } : props),
  },
  components: {
    OAS31Info: ({ specSelectors, getComponent }) => {
      const info = specSelectors.info();
      const Markdown = getComponent("Markdown", true);
      return make("header", { className: "info" },
        make("h1", { id: "top" }, info.get("title"),
          make("span", { className: "version" }, info.get("version"))),
        make(Markdown, { source: info.get("description") }),
        make("h2", null, "Operations"),
        make("p", null, "Authorize with your key, then send requests from this page. For your own ",
          "tools, use the ",
          make("a", { href: specSelectors.url() }, "OpenAPI document"), "."));
    },
  },
});

SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  onComplete: fillContents,
  plugins: [head],
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
