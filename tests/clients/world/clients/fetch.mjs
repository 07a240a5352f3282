import { answer } from "./lines.mjs";

await answer(async (method, url, body, headers) => {
  const response = await fetch(url, { method, body, headers });
  return [response.status, await response.text(), response.headers];
});
