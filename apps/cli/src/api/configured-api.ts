import { existsSync, readFileSync } from 'node:fs';
import { DomainError } from '#hotbed/contracts';
import { loadConfig } from '#hotbed/runtime';
import { z } from 'zod';
import { platformFilesHere } from '../platform/platform-files';
import { ApiClient } from './api-client';

/** The gateway of HOTBED_API_URL and HOTBED_API_KEY, else of the platform that `hotbed up` left running here. */
export function configuredApi(): ApiClient {
  const config = loadConfig(
    {
      HOTBED_API_URL: z.url().optional(),
      HOTBED_API_KEY: z.string().optional(),
    },
    (values) => ({
      url: values.HOTBED_API_URL,
      key: values.HOTBED_API_KEY,
    }),
  );
  const files = platformFilesHere();
  const url = config.url ?? firstLine(files.address);
  const key = config.key ?? firstLine(files.apiKey);
  if (url !== null && key !== null) return new ApiClient(url, key);
  throw new DomainError(
    'IllegalState',
    'no_platform',
    `no platform in ${files.dataDir}; start one with npm start, or set HOTBED_API_URL and HOTBED_API_KEY`,
  );
}

function firstLine(file: string): string | null {
  return existsSync(file) ? (readFileSync(file, 'utf8').split('\n')[0] ?? null) : null;
}
