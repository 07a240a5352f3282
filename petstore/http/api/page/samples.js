// Each operation as a request in several languages, built from the examples in the document.

const LANGUAGES = { curl: "curl", python: "Python", typescript: "TypeScript" };

// Return the samples of an operation by language. They take the key from the environment.
function writeSamples(operation, method, url) {
  const query = new URLSearchParams();
  let idempotent = false;
  for (const { name, in: where, example, schema } of operation.parameters ?? []) {
    if (where === "path") url = url.replace(`{${name}}`, example);
    if (where === "query" && name !== "cursor") query.append(name, schema.examples[0]);
    if (name === "Idempotency-Key") idempotent = true;
  }
  if (`${query}`) url += `?${query}`;
  const content = operation.requestBody?.content["application/json"];
  const example = content?.example ?? Object.values(content?.examples ?? {})[0]?.value;
  const body = example && JSON.stringify(example, null, 1)
    .replace(/(?<=[{[])\n *|\n *(?=[}\]])/g, "").replace(/\n */g, " ");
  const request = { method: method.toUpperCase(), url, body, idempotent };
  return { curl: curl(request), python: python(request), typescript: typescript(request) };
}

function curl({ method, url, body, idempotent }) {
  const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const option = method === (body ? "POST" : "GET") ? "" : `-X ${method} `;
  return [
    `curl -w '\\n' ${option}${quote(url)}`,
    `-H "Authorization: Bearer $KEY"`,
    idempotent && `-H "Idempotency-Key: $(date +%s%N)"`, // uuidgen is not installed everywhere
    body && `-H "Content-Type: application/json"`,
    body && `-d ${quote(body)}`,
  ].filter(Boolean).join(" \\\n  ");
}

function python({ method, url, body, idempotent }) {
  return lines(
    "import json",
    "import os",
    idempotent && "import uuid",
    "from urllib.request import Request, urlopen",
    "",
    "request = Request(",
    `    ${JSON.stringify(url)},`,
    `    method="${method}",`,
    "    headers={",
    `        "Authorization": f"Bearer {os.environ['KEY']}",`,
    idempotent && `        "Idempotency-Key": str(uuid.uuid4()),`,
    body && `        "Content-Type": "application/json",`,
    "    },",
    body && `    data=json.dumps(${body}).encode(),`,
    ")",
    "with urlopen(request) as response:",
    "    print(json.load(response))",
  );
}

function typescript({ method, url, body, idempotent }) {
  return lines(
    `const response = await fetch(${JSON.stringify(url)}, {`,
    `  method: "${method}",`,
    "  headers: {",
    "    Authorization: `Bearer ${process.env.KEY}`,",
    idempotent && `    "Idempotency-Key": crypto.randomUUID(),`,
    body && `    "Content-Type": "application/json",`,
    "  },",
    body && `  body: JSON.stringify(${body}),`,
    "});",
    "if (!response.ok) throw new Error(await response.text());",
    "console.log(await response.json());",
  );
}

const lines = (...all) => all.filter((line) => typeof line === "string").join("\n");
