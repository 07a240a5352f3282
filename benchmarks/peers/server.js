// Fastify with its own JSON schemas for requests and responses.
// Run: NODE_PATH=.../node_modules node server.js PORT
//
// JSON numbers are doubles here: 1.0 is 1, and not every integer beyond 2^53 can be represented.
'use strict'

const { createHash, randomBytes } = require('node:crypto')
const fastify = require('fastify')

const STATUSES = ['available', 'pending', 'sold']
const CLIENTS = new Set([createHash('sha256').update('benchmark-key-of-ours').digest('hex')])
const process_ = randomBytes(6).toString('hex')
const REALM = 'Bearer realm="petstore"'
let requests = 0

const pets = []
const ids = { available: [], pending: [], sold: [] }

function add (name, categoryId, status) {
  const pet = { id: pets.length + 1, name, categoryId, status }
  pets.push(pet)
  if (status !== undefined) ids[status].push(pet.id)
  return pet
}

for (let n = 0; n < 10000; n++) {
  add('pet' + String(n).padStart(5, '0'), n % 10, STATUSES[n % 3])
}

// Returns the index of the first id in the list that is greater.
function after (list, id) {
  let low = 0
  let high = list.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (list[middle] > id) high = middle
    else low = middle + 1
  }
  return low
}

function refused (statusCode, code, message) {
  return Object.assign(new Error(message), { statusCode, refusal: code })
}

const schema = {
  newPet: {
    type: 'object',
    required: ['name', 'categoryId'],
    properties: {
      name: { type: 'string' },
      categoryId: { type: 'integer', minimum: -(2 ** 63), exclusiveMaximum: 2 ** 63 },
      status: { type: 'string', enum: STATUSES }
    }
  },
  pet: {
    type: 'object',
    properties: {
      id: { type: 'integer' },
      name: { type: 'string' },
      categoryId: { type: 'integer' },
      status: { type: 'string' }
    }
  },
  query: {
    type: 'object',
    properties: {
      limit: { type: 'string', pattern: '^([1-9][0-9]?|100)$' },
      status: { type: 'string', enum: STATUSES },
      cursor: { type: 'string', pattern: '^p[01][0-9a-f]{13}$' }
    }
  }
}

const app = fastify({ logger: false, ajv: { customOptions: { coerceTypes: false } } })

app.addHook('onRequest', async (request, reply) => {
  const sent = request.headers['x-request-id']
  const good = sent !== undefined && /^[A-Za-z0-9._-]{1,128}$/.test(sent)
  reply.header('x-request-id', good ? sent : `${process_}-${(++requests).toString(16)}`)
  reply.header('cache-control', 'no-store')
  reply.header('x-content-type-options', 'nosniff')
  reply.header('content-security-policy', "default-src 'none'; frame-ancestors 'none'")
  if (request.url.startsWith('/v1/pets/')) {
    reply.header('deprecation', '@1764892800')
    reply.header('sunset', 'Thu, 05 Dec 2030 00:00:00 GMT')
    reply.header('link', '</v1/pets>; rel="successor-version"')
  }
  if (request.is404) return
  const match = /^bearer +([^ ]+) *$/i.exec(request.headers.authorization ?? '')
  if (match === null) {
    reply.header('www-authenticate', REALM)
    throw refused(401, 'unauthorized', 'An API key is missing: send Authorization: Bearer <API_KEY>.')
  }
  if (!CLIENTS.has(createHash('sha256').update(match[1]).digest('hex'))) {
    reply.header('www-authenticate', `${REALM}, error="invalid_token"`)
    throw refused(401, 'unauthorized', 'The API key is not valid.')
  }
})

app.get('/v1/pets', {
  schema: { querystring: schema.query, response: { 200: { type: 'array', items: schema.pet } } }
}, async (request, reply) => {
  const { status, cursor } = request.query
  const limit = Number(request.query.limit ?? 20)
  const from = cursor === undefined ? 0 : parseInt(cursor.slice(1), 16)
  let page
  let more
  let last
  if (status === undefined) {
    page = pets.slice(from, from + limit)
    more = pets.length > from + limit
    last = from + limit
  } else {
    const list = ids[status]
    const begin = after(list, from)
    page = list.slice(begin, begin + limit).map(id => pets[id - 1])
    more = list.length > begin + limit
    last = list[begin + limit - 1]
  }
  if (more) {
    const chosen = status === undefined ? '' : `&status=${status}`
    const next = `p${last.toString(16).padStart(14, '0')}`
    reply.header('link', `</v1/pets?limit=${limit}${chosen}&cursor=${next}>; rel="next"`)
  }
  return page
})

app.post('/v1/pets', {
  schema: { body: schema.newPet, response: { 201: schema.pet } }
}, async (request, reply) => {
  const { name, categoryId, status } = request.body
  const pet = add(name, categoryId, status)
  reply.code(201).header('location', `/v1/pets/${pet.id}`)
  return pet
})

app.get('/v1/pets/:id', { schema: { response: { 200: schema.pet } } }, async (request) => {
  const text = request.params.id
  const pet = /^[1-9][0-9]{0,15}$/.test(text) && pets[Number(text) - 1]
  if (!pet) throw refused(404, 'not_found', 'Pet not found.')
  return pet
})

app.setErrorHandler((error, request, reply) => {
  const status = error.statusCode ?? 500
  const code = error.refusal ?? (status < 500 ? 'invalid_request' : 'internal_error')
  reply.code(status).send({ code, message: error.message, status })
})

app.setNotFoundHandler((request, reply) => {
  reply.code(404).send({ code: 'not_found', message: 'Path not found.', status: 404 })
})

app.listen({ host: '127.0.0.1', port: Number(process.argv[2]) })
