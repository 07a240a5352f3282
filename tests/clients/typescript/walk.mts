// The operations that docs/clients.md does not show, with the generated client, on an empty store.

import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./petstore.d.ts";

type ErrorBody = components["schemas"]["Error"];
type Order = components["schemas"]["Order"];
type Pet = components["schemas"]["Pet"];
type Result<T> = { data?: T; error?: ErrorBody };

const baseUrl = "http://127.0.0.1:8000/v1";
const anonymous = createClient<paths>({ baseUrl });
const client = createClient<paths>({
  baseUrl,
  headers: { Authorization: `Bearer ${process.env.KEY}` },
});

/** Returns the data of a response, which is not an error. */
function unwrap<T>({ data, error }: Result<T>): T {
  assert.equal(error, undefined);
  assert(data !== undefined);
  return data;
}

/** Checks the code of an error, which is typed. */
function refused({ data, error }: Result<unknown>, code: ErrorBody["code"]): void {
  assert.equal(data, undefined);
  assert(error?.message);
  assert.equal(error.code, code);
}

const petAt = (petId: number) => ({ params: { path: { petId } } });
const orderAt = (orderId: number) => ({ params: { path: { orderId } } });
const repeatable = (key: string) => ({ params: { header: { "Idempotency-Key": key } } });

/** Adds a pet without a status, twice with the same key, and one that is available: returns it. */
async function pets(): Promise<Pet> {
  const body = { name: "plain", categoryId: -1 };
  const first = await client.POST("/pets", { ...repeatable("once"), body });
  const again = await client.POST("/pets", { ...repeatable("once"), body });
  const plain = unwrap(first);
  assert.deepEqual(unwrap(again), { id: plain.id, ...body });
  assert.equal(again.response.headers.get("idempotency-replayed"), "true");
  assert.equal(first.response.headers.get("location"), `/v1/pets/${plain.id}`);
  const available = { name: "other", categoryId: 2, status: "available" } as const;
  const other = unwrap(await client.POST("/pets", { body: available }));
  assert.deepEqual(unwrap(await client.GET("/pets")), [plain, other]);
  const sold = { params: { query: { status: "sold" as const } } };
  assert.deepEqual(unwrap(await client.GET("/pets", sold)), []);
  return other;
}

/** Checks that every error is typed and has its code. */
async function errors(pet: Pet): Promise<void> {
  const limited = { params: { query: { limit: 101 } } };
  const forged = { params: { query: { cursor: "x" } } };
  const nameless = { body: { name: null as unknown as string, categoryId: 1 } };
  refused(await anonymous.GET("/pets"), "unauthorized");
  refused(await anonymous.GET("/pets/{petId}", petAt(pet.id)), "unauthorized");
  refused(await client.GET("/pets", limited), "invalid_request");
  refused(await client.GET("/pets", forged), "invalid_request");
  refused(await client.POST("/pets", nameless), "invalid_request");
  refused(await client.GET("/pets/{petId}", petAt(pet.id + 1)), "not_found");
  refused(await client.GET("/store/orders/{orderId}", orderAt(1)), "not_found");
  const missing = { body: { petId: pet.id + 1 } };
  refused(await client.POST("/store/orders", missing), "not_found");
  assert.deepEqual(unwrap(await client.GET("/pets/{petId}", petAt(pet.id))), pet);
}

/** Orders a pet and reads the order. */
async function orders(pet: Pet): Promise<Order> {
  const order = unwrap(await client.POST("/store/orders", { body: { petId: pet.id } }));
  assert.equal(order.status, "placed");
  assert(!Number.isNaN(Date.parse(order.placedAt)));
  const placed = { params: { query: { status: "placed" as const } } };
  assert.deepEqual(unwrap(await client.GET("/store/orders", placed)), [order]);
  const read = await client.GET("/store/orders/{orderId}", orderAt(order.id));
  assert.deepEqual(unwrap(read), order);
  return order;
}

/** Completes the order: the pet is sold, the order final. */
async function endings(pet: Pet, order: Order): Promise<void> {
  const end = (status: Order["status"]) =>
    client.PATCH("/store/orders/{orderId}", { ...orderAt(order.id), body: { status } });
  assert.equal(unwrap(await end("completed")).status, "completed");
  refused(await end("cancelled"), "conflict");
  assert.equal(unwrap(await client.GET("/pets/{petId}", petAt(pet.id))).status, "sold");
}

const added = await pets();
await errors(added);
await endings(added, await orders(added));
