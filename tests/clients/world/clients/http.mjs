import { once } from "node:events";
import http from "node:http";
import { text } from "node:stream/consumers";
import { answer } from "./lines.mjs";

await answer(async (method, url, body, headers) => {
  const [response] = await once(http.request(url, { method, headers }).end(body), "response");
  return [response.statusCode, await text(response), Object.entries(response.headers)];
});
