import axios from "axios";
import { answer } from "./lines.mjs";

await answer(async (method, url, data, headers) => {
  const transformResponse = (text) => text; // not parsed
  const validateStatus = () => true; // an error is a response, too
  const response = await axios({ method, url, data, headers, transformResponse, validateStatus });
  return [response.status, response.data, response.headers];
});
