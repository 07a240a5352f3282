import { Pool } from "undici";
import { answer } from "./lines.mjs";

let pool;
await answer(
  async (method, url, body, headers) => {
    const { origin, pathname, search } = new URL(url);
    pool ??= new Pool(origin, { connections: 1, pipelining: 10 });
    const path = pathname + search;
    // `blocking` is true unless the method is HEAD, and then nothing is pipelined.
    const response = await pool.request({ path, method, body, headers, blocking: false });
    return [response.statusCode, await response.body.text(), Object.entries(response.headers)];
  },
  { pipelined: true },
);
await pool.close();
