import { Registry } from 'prom-client';
import { COMMANDS } from '#hotbed/contracts';
import { withTestDatabase } from '#hotbed/event-store/testing';
import { withTestBroker } from '#hotbed/messaging/testing';
import { Health, silentLogger } from '#hotbed/runtime';
import { createGatewayApp, type GatewayApp } from '../gateway.app';
import { startEnvironment } from '../testing/start-environment';

jest.setTimeout(60_000);

interface Schema {
  type?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  nullable?: boolean;
  default?: unknown;
}
interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header';
  required?: boolean;
  schema?: Schema;
}
interface Operation {
  operationId: string;
  parameters?: Parameter[];
  requestBody?: { required?: boolean; content: Record<string, { schema: Schema }> };
  responses: Record<string, { content?: Record<string, { schema: Schema }> }>;
  security?: unknown[];
}

const EXPERIMENT = Object.keys(COMMANDS.orchestrator['create-experiment'].request.shape).join(' ');
const SAMPLE = 'prompt prompts samplesPerPrompt seed temperature topK topP maxTokens stopStrings';
const AS_OF = 'asOfPosition head';
const STREAM = 'dataStreamId name records rejected version subject createdAtMs';

/** Route -> query, fields of the body, fields of the answer (null: no JSON object). Its path names its own parameters. */
const DOORS: Record<string, { query?: string; body?: string; reply: string | null }> = {
  'POST /v1/streams': { body: 'name idempotencyKey', reply: STREAM },
  'GET /v1/streams': { query: 'limit after', reply: 'dataStreams next' },
  'GET /v1/streams/{stream}': { reply: STREAM },
  'POST /v1/streams/{stream}/records': { body: 'records', reply: 'records' },
  'GET /v1/streams/{stream}/records': { query: 'limit after', reply: 'records next' },
  'POST /v1/experiments': { body: EXPERIMENT, reply: '...' },
  'GET /v1/experiments': { query: 'limit after', reply: 'experiments next' },
  'GET /v1/experiments/{experiment}': { reply: '...' },
  'POST /v1/experiments/{experiment}/trigger': { reply: 'triggerId from to records' },
  'POST /v1/experiments/{experiment}/pause': { reply: '...' },
  'POST /v1/experiments/{experiment}/resume': { reply: '...' },
  'POST /v1/experiments/{experiment}/cancel': { reply: '...' },
  'GET /v1/adapters': { query: 'limit after', reply: `${AS_OF} adapters next` },
  'GET /v1/adapters/{adapter}': { reply: `${AS_OF} adapter` },
  'GET /v1/adapters/{adapter}/versions': { query: 'limit after', reply: `${AS_OF} versions next` },
  'GET /v1/adapters/{adapter}/resolve': { query: 'ref asOfMs', reply: `${AS_OF} version` },
  'GET /v1/adapters/{adapter}/versions/{version}/lineage': {
    query: 'limit after',
    reply: `${AS_OF} version distinctRecords distinctRollouts influences next`,
  },
  'GET /v1/records/{record}/versions': { reply: `${AS_OF} recordId versions` },
  'GET /v1/adapters/{adapter}/aliases/{alias}/history': { reply: `${AS_OF} moves` },
  'POST /v1/adapters/{adapter}/aliases/{alias}': { body: 'version reason', reply: 'adapterId alias version' },
  'GET /v1/adapters/{ref}/peft/{file}': { reply: null },
  'POST /v1/adapters/{ref}/sample': { body: SAMPLE, reply: 'adapter requestId prompts' },
  'POST /v1/base/sample': { body: SAMPLE, reply: 'adapter requestId prompts' },
  'GET /v1/audit/head': { reply: AS_OF },
  'GET /v1/events': { query: 'after types', reply: null },
  'POST /v1/tenants': { body: 'name', reply: 'tenantId name created' },
  'POST /v1/tenants/{tenant}/keys': { body: 'role label', reply: 'keyId key' },
  'DELETE /v1/tenants/keys/{key}': { reply: 'keyId' },
  'GET /healthz': { reply: null },
  'GET /readyz': { reply: null },
  'GET /metrics': { reply: null },
};

describe('the description of the API', () => {
  const db = withTestDatabase();
  const broker = withTestBroker();
  let gateway: GatewayApp;
  const operations = new Map<string, Operation>();

  beforeAll(async () => {
    const env = startEnvironment(db, broker);
    const host = { logger: silentLogger(), metrics: new Registry(), health: new Health() };
    gateway = (await createGatewayApp(env, host)) as GatewayApp;
    await gateway.start();
    const answer = await fetch(`${gateway.url}/docs-json`);
    const { paths } = (await answer.json()) as { paths: Record<string, Record<string, Operation>> };
    for (const [path, methods] of Object.entries(paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        operations.set(`${method.toUpperCase()} ${path}`, operation);
      }
    }
  }, 60_000);
  afterAll(() => gateway.stop());

  const namesIn = (operation: Operation, place: Parameter['in']) =>
    (operation.parameters ?? []).filter((p) => p.in === place).map((p) => p.name);
  const bodyOf = (operation: Operation): Schema | undefined =>
    operation.requestBody?.content['application/json']?.schema;
  const replyOf = (operation: Operation): Schema | undefined =>
    operation.responses['2XX']?.content?.['application/json']?.schema;
  const fields = (text: string | undefined): string[] => (text === undefined ? [] : text.split(' ').sort());

  it('names every route and no other, each operation under a name of its own', () => {
    expect([...operations.keys()].sort()).toEqual(Object.keys(DOORS).sort());
    expect(new Set([...operations.values()].map((o) => o.operationId)).size).toBe(operations.size);
  });

  it.each(Object.entries(DOORS))('%s: path, query, body and answer', (route, door) => {
    const operation = operations.get(route)!;
    expect(namesIn(operation, 'path').sort()).toEqual([...route.matchAll(/\{(\w+)\}/g)].map((m) => m[1]).sort());
    expect(namesIn(operation, 'query').sort()).toEqual(fields(door.query));
    expect(Object.keys(bodyOf(operation)?.properties ?? {}).sort()).toEqual(fields(door.body));
    expect(operation.requestBody === undefined).toBe(door.body === undefined);
    const reply = Object.keys(replyOf(operation)?.properties ?? {}).sort();
    if (door.reply === '...') expect(reply).toEqual(expect.arrayContaining(['experimentId', 'state', 'totalSteps']));
    else expect(reply).toEqual(door.reply === null ? [] : fields(door.reply));
    const isOpen = ['/healthz', '/readyz', '/metrics'].some((path) => route.endsWith(path));
    expect(operation.security ?? []).toEqual(isOpen ? [] : [{ bearer: [] }]);
  });

  it('says which fields of a body must be given, and what a page is when nothing is asked for', () => {
    const required = (route: string) => bodyOf(operations.get(route)!)?.required ?? [];
    expect(required('POST /v1/adapters/{adapter}/aliases/{alias}')).toEqual(['version']);
    expect(required('POST /v1/tenants/{tenant}/keys')).toEqual([]);
    expect(required('POST /v1/experiments').sort()).toEqual(['dataStream', 'name', 'reward']);
    const limit = (route: string) => operations.get(route)!.parameters!.find((p) => p.name === 'limit');
    expect(limit('GET /v1/adapters')).toMatchObject({ required: false, schema: { type: 'integer', default: 100 } });
    expect(limit('GET /v1/adapters/{adapter}/versions/{version}/lineage')!.schema).toMatchObject({ default: 1000 });
  });
});
