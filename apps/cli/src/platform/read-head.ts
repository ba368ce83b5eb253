import { ApiClient } from '../api/api-client';
import type { Platform } from './start-platform';

/** `<position>:<hash>` of the log's end, as an auditor keeps it. */
export async function readHead(platform: Pick<Platform, 'url' | 'apiKey'>): Promise<string> {
  const api = new ApiClient(platform.url, platform.apiKey);
  const { head } = await api.get<{ head: { position: string; hash: string } }>('/v1/audit/head');
  return `${head.position}:${head.hash}`;
}
