import axios from "axios";
import { answer } from "./lines.mjs";

const client = axios.create({
  transformResponse: (text) => text, // not parsed
  validateStatus: () => true, // an error is a response, too
});
await answer(async (method, url, data, headers, signal) => {
  const response = await client.request({ method, url, data, headers, signal });
  return [response.status, response.data, response.headers];
});
