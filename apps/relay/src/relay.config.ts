import { EVENT_STREAM_LIMITS, type StreamLimits } from '#hotbed/messaging';
import {
  blobConfigShape,
  databaseConfigShape,
  integerVariable,
  loadConfig,
  natsConfigShape,
  toBlobFolder,
  toNatsConfig,
  type NatsConfig,
} from '#hotbed/runtime';

export interface RelayConfig {
  databaseUrl: string;
  nats: NatsConfig;
  /** Large payloads are read from there. */
  blobFolder: string;
  limits: StreamLimits;
}

const HOUR_MS = 3_600_000;

/** @throws ConfigError */
export function loadRelayConfig(env: NodeJS.ProcessEnv): RelayConfig {
  return loadConfig(
    {
      ...databaseConfigShape,
      ...natsConfigShape,
      ...blobConfigShape,
      HOTBED_STREAM_MAX_BYTES: integerVariable(1 << 20, Number.MAX_SAFE_INTEGER).default(EVENT_STREAM_LIMITS.maxBytes),
      HOTBED_STREAM_MAX_AGE_HOURS: integerVariable(1, 24 * 3650).default(EVENT_STREAM_LIMITS.maxAgeMs / HOUR_MS),
    },
    (values): RelayConfig => ({
      databaseUrl: values.HOTBED_DATABASE_URL,
      nats: toNatsConfig(values, 'relay'),
      blobFolder: toBlobFolder(values),
      limits: {
        maxBytes: values.HOTBED_STREAM_MAX_BYTES,
        maxAgeMs: values.HOTBED_STREAM_MAX_AGE_HOURS * HOUR_MS,
      },
    }),
    env,
  );
}
