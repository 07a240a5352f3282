// Make the requests of standard input with a function of a client, which gets method, URL, body and
// headers, and returns status, body and headers.
import { createInterface } from "node:readline";

export async function answer(send, { pipelined = false } = {}) {
  for await (const line of createInterface({ input: process.stdin })) {
    const [count, method, url, body, ...headers] = line.split("\t");
    const pairs = Object.fromEntries(headers.map((header) => header.split(": ", 2)));
    const responses = [];
    for (let n = 0; n < count; n++) {
      const response = send(method, url, body || undefined, pairs);
      responses.push(pipelined ? response : await response);
    }
    for (const [status, text, received] of await Promise.all(responses)) {
      const lines = [...received].flatMap(([name, values]) =>
        [values].flat().map((value) => `${name}: ${value}`),
      );
      process.stdout.write([status, text, ...lines].join("\t") + "\n");
    }
  }
}
