import { answer } from "./lines.mjs";

await answer(async (method, url, body, headers, signal) => {
  const response = await fetch(url, { method, body, headers, signal });
  return [response.status, await response.text(), response.headers];
});
