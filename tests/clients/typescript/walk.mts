// The operations that docs/clients.md does not show, with the generated client, on an empty store.

import assert from "node:assert/strict";
import LinkHeader from "http-link-header";
import createClient from "openapi-fetch";
import type { components, paths } from "./petstore.d.ts";

type ErrorBody = components["schemas"]["Error"];
type Order = components["schemas"]["Order"];
type Pet = components["schemas"]["Pet"];
type PetStatus = components["schemas"]["PetStatus"];
type Result<T> = { data?: T; error?: ErrorBody };

const PETS = 45;

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

/** Follows the next links to the last page. */
async function* pages(limit: number, status?: PetStatus): AsyncGenerator<Pet[]> {
  let cursor: string | undefined;
  do {
    const page = await client.GET("/pets", { params: { query: { limit, status, cursor } } });
    yield unwrap(page);
    const [link] = LinkHeader.parse(page.response.headers.get("link") ?? "").rel("next");
    cursor = link && (new URL(link.uri, baseUrl).searchParams.get("cursor") ?? undefined);
  } while (cursor);
}

async function all(limit: number, status?: PetStatus): Promise<Pet[][]> {
  const walked = [];
  for await (const page of pages(limit, status)) walked.push(page);
  return walked;
}

const petAt = (petId: number) => ({ params: { path: { petId } } });
const orderAt = (orderId: number) => ({ params: { path: { orderId } } });
const repeatable = (key: string) => ({ params: { header: { "Idempotency-Key": key } } });

/** Adds pets: every third one is available, the others have no status. */
async function pets(): Promise<Pet[]> {
  const added: Pet[] = [];
  for (let number = 0; number < PETS; number++) {
    const body = { name: `pet ${number}`, categoryId: number };
    const created = await client.POST("/pets", {
      body: number % 3 === 0 ? { ...body, status: "available" } : body,
    });
    const pet = unwrap(created);
    assert.equal(created.response.headers.get("location"), `/v1/pets/${pet.id}`);
    added.push(pet);
  }
  return added;
}

/** Lists all pets: each exactly once, whether or not the last page is full. */
async function lists(added: Pet[]): Promise<void> {
  const sizes: Record<number, number[]> = { 10: [10, 10, 10, 10, 5], 15: [15, 15, 15], 100: [45] };
  for (const limit of [10, 15, 100]) {
    const walked = await all(limit);
    assert.deepEqual(walked.map((page) => page.length), sizes[limit]);
    assert.deepEqual(walked.flat(), added);
  }
  const available = await all(4, "available");
  assert.deepEqual(available.flat(), added.filter((_, number) => number % 3 === 0));
  assert.deepEqual(await all(10, "sold"), [[]]);
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
  refused(await client.GET("/pets/{petId}", petAt(PETS + 1)), "not_found");
  refused(await client.GET("/store/orders/{orderId}", orderAt(1)), "not_found");
  const missing = { body: { petId: PETS + 1 } };
  refused(await client.POST("/store/orders", missing), "not_found");
  assert.deepEqual(unwrap(await client.GET("/pets/{petId}", petAt(pet.id))), pet);
}

/** Orders a pet, and retries. Another order for it is refused. */
async function orders(pet: Pet, other: Pet): Promise<Order> {
  const send = (petId: number) =>
    client.POST("/store/orders", { ...repeatable("first"), body: { petId } });
  const first = await send(pet.id);
  const again = await send(pet.id);
  const order = unwrap(first);
  assert.equal(order.status, "placed");
  assert(!Number.isNaN(Date.parse(order.placedAt)));
  assert.deepEqual(unwrap(again), order);
  assert.equal(first.response.headers.get("idempotency-replayed"), null);
  assert.equal(again.response.headers.get("idempotency-replayed"), "true");
  refused(await send(other.id), "conflict");
  const second = await client.POST("/store/orders", { body: { petId: pet.id } });
  refused(second, "conflict");
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

/** Adds a pet twice with the same Idempotency-Key: it is stored once. */
async function retries(): Promise<void> {
  const body = { name: "once", categoryId: 1 };
  const first = await client.POST("/pets", { ...repeatable("once"), body });
  const again = await client.POST("/pets", { ...repeatable("once"), body });
  assert.equal(unwrap(again).id, unwrap(first).id);
  assert.equal(again.response.headers.get("idempotency-replayed"), "true");
  assert.equal((await all(100)).flat().length, PETS + 1);
}

const added = await pets();
await lists(added);
await errors(added[0]);
await endings(added[0], await orders(added[0], added[3]));
await retries();
