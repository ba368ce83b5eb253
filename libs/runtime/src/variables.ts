/**
 * Every HOTBED_* variable of every app, in one place: all apps share one environment, so an app must know the others'
 * variables to tell a misspelt one from one that is not its own. `hotbed doctor` prints this list.
 */
export const VARIABLES = {
  HOTBED_ADAPTER_MEMORY_MIB: 'memory of adapters above which a worker lets idle ones go, MiB',
  HOTBED_API_KEY: 'key that the hotbed command sends',
  HOTBED_API_URL: 'address of the gateway that the hotbed command talks to',
  HOTBED_BASE_MODEL: 'folder of the base model in Hugging Face layout',
  HOTBED_BLOB_DIR: 'folder of the content-addressed blobs; default: blobs below the data folder',
  HOTBED_DATABASE_OWNER_URL: 'PostgreSQL as the role that owns the schema (migrations only)',
  HOTBED_DATABASE_URL: 'PostgreSQL as the application role; unset: the embedded server',
  HOTBED_DATA_DIR: 'data folder; default: .hotbed below the working directory',
  HOTBED_DECODE_FLOOR: 'part of the engine that sampling keeps while training waits, too: 0..1',
  HOTBED_ENGINE_ACTIVATION_MIB:
    'memory for training activations, MiB: passes are cut to it, else layers are computed twice',
  HOTBED_ENGINE_THREADS: 'threads of the engine',
  HOTBED_FAILPOINTS: 'places at which a worker under test ends itself; refused outside NODE_ENV=test',
  HOTBED_FULL_RANGE: '1: native tests take all 2^32 inputs of exp and log',
  HOTBED_HTTP_HOST: 'address that the gateway listens on',
  HOTBED_HTTP_PORT: 'port that the gateway listens on',
  HOTBED_INGEST_MAX_BYTES: "room of each tenant's ingest stream on the broker, bytes",
  HOTBED_KERNELS: 'kernel path of the engine: auto, scalar, avx2, avx512, avx512bf16',
  HOTBED_KV_CACHE_MIB: 'memory for KV caches, MiB',
  HOTBED_LEASE_TTL_MS: 'time after which a silent worker may lose its leases',
  HOTBED_LOG_LEVEL: 'fatal, error, warn, info, debug, trace or silent',
  HOTBED_MAX_SAMPLING_CALLS: 'sampling calls that may be pending in the engine',
  HOTBED_MAX_SAMPLING_TOKENS: 'tokens of sampling calls that may be pending in the engine',
  HOTBED_MAX_TRAINING_MIB: 'training data that may be pending in the engine, MiB',
  HOTBED_MAX_TRAINING_ROWS: 'training rows that may be pending in the engine',
  HOTBED_MAX_WAIT_GFLOP: 'work, 10^9 FLOPs, after which whoever still waits for the engine goes next',
  HOTBED_NATS_CREDENTIALS_FILE: 'JSON file of broker passwords by user name, mode 600',
  HOTBED_NATS_PASSWORD: 'password of HOTBED_NATS_USER',
  HOTBED_NATS_PORT: 'port of the NATS server that hotbed starts itself; 0 = any free one',
  HOTBED_NATS_SERVER: 'path of the nats-server program',
  HOTBED_NATS_URL: 'NATS server with JetStream; unset: hotbed starts its own',
  HOTBED_NATS_USER: 'user name at the broker',
  HOTBED_NUMERICS: 'numerics contract of the engine: f32-1 (default), or bf16-1 where `hotbed doctor` offers it',
  HOTBED_OPS_HOST: 'address of the operations server of a process',
  HOTBED_OPS_PORT: 'port for /healthz, /readyz and /metrics of a process without a gateway',
  HOTBED_POLICY_MEMORY_MIB: 'memory of policy states that a worker keeps ready to sample from, MiB',
  HOTBED_POSTGRES_PORT: 'port of the embedded PostgreSQL; 0 = any free one',
  HOTBED_SHUTDOWN_TIMEOUT_MS: 'time that a process has to stop after SIGTERM',
  HOTBED_STREAM_MAX_AGE_HOURS: 'how long the broker keeps events (the log keeps them for ever)',
  HOTBED_STREAM_MAX_BYTES: 'room of each event stream on the broker, bytes',
  HOTBED_TENANT_MAX_SAMPLING_CALLS: 'as HOTBED_MAX_SAMPLING_CALLS, of one tenant',
  HOTBED_TENANT_MAX_SAMPLING_TOKENS: 'as HOTBED_MAX_SAMPLING_TOKENS, of one tenant',
  HOTBED_TENANT_MAX_TRAINING_MIB: 'as HOTBED_MAX_TRAINING_MIB, of one tenant',
  HOTBED_TENANT_MAX_TRAINING_ROWS: 'as HOTBED_MAX_TRAINING_ROWS, of one tenant',
  HOTBED_TENANT_WEIGHTS: "tenants' parts of contested work: <tenant id>=<weight>,...; 1 where not named",
  HOTBED_TEST_DATABASE_URL: 'PostgreSQL for tests, as a superuser; unset: an embedded server',
  HOTBED_TEST_MODEL: 'folder of a real model for the tests that want one; unset: they are skipped',
  HOTBED_TEST_PYTHON: 'Python with torch, transformers and peft for the tests that want one; unset: they are skipped',
  HOTBED_TRAINING_FLOOR: 'part of the engine that training keeps while sampling waits, too: 0..1',
  HOTBED_VERIFIER_DIR: 'folder of own verifiers',
  HOTBED_WORKER_NAME: 'stable name of a worker; default: worker-1',
  HOTBED_WORKER_POLL_MS: 'how often a worker reads its work list although nobody rang',
} as const satisfies Record<`HOTBED_${string}`, string>;

export type VariableName = keyof typeof VARIABLES;

export function isVariable(name: string): name is VariableName {
  return Object.hasOwn(VARIABLES, name);
}
