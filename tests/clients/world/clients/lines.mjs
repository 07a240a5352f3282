// Make the requests of standard input with a function of a client, which gets method, URL, body,
// headers and a signal, and returns status, body and headers.
import { createInterface } from "node:readline";

export async function answer(send) {
  for await (const line of createInterface({ input: process.stdin })) {
    const [count, parallel, seconds, method, url, body, ...headers] = line.split("\t");
    const pairs = Object.fromEntries(headers.map((header) => header.split(": ", 2)));
    const responses = [];
    for (let n = 0; n < count; n++) {
      const signal = AbortSignal.timeout(1000 * seconds);
      const response = send(method, url, body || undefined, pairs, signal)
        .catch((error) => [0, error.constructor.name, []]);
      responses.push(parallel ? response : await response);
    }
    for (const [status, text, received] of await Promise.all(responses)) {
      const lines = [...received].map(([name, value]) => `${name}: ${value}`);
      process.stdout.write([status, text, ...lines].join("\t") + "\n");
    }
  }
}
