import { Unavailable, fromWireError, wireErrorSchema } from '#hotbed/contracts';

const TIMEOUT_MS = 120_000;

/** Talks to the gateway with one API key. Answers are what the gateway's command schemas say. */
export class ApiClient {
  constructor(
    readonly url: string,
    private readonly key: string,
  ) {}

  get<T>(path: string, query: Record<string, string | number | undefined> = {}): Promise<T> {
    const parameters = Object.entries(query).flatMap(([k, v]): [string, string][] =>
      v === undefined ? [] : [[k, String(v)]],
    );
    const text = new URLSearchParams(parameters).toString();
    return this.request<T>('GET', text === '' ? path : `${path}?${text}`);
  }

  post<T>(path: string, body: unknown = {}): Promise<T> {
    return this.request<T>('POST', path, body);
  }

  /** Bytes of a file. */
  async download(path: string): Promise<Buffer> {
    return Buffer.from(await (await this.send('GET', path)).arrayBuffer());
  }

  /** @throws DomainError as the gateway refused it; Unavailable when nothing answers */
  private async request<T>(method: string, path: string, body?: unknown): Promise<T> {
    return (await (await this.send(method, path, body)).json()) as T;
  }

  private async send(method: string, path: string, body?: unknown): Promise<Response> {
    let response: Response;
    try {
      response = await fetch(new URL(path, this.url), {
        method,
        headers: {
          authorization: `Bearer ${this.key}`,
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        },
        body: body === undefined ? null : JSON.stringify(body),
        signal: AbortSignal.timeout(TIMEOUT_MS),
      });
    } catch (error) {
      throw new Unavailable(
        'gateway_unreachable',
        `no answer from ${this.url}; is hotbed running? start it with npm start`,
        {
          cause: error,
        },
      );
    }
    if (response.ok) return response;
    const text = await response.text();
    let wire;
    try {
      wire = wireErrorSchema.safeParse((JSON.parse(text) as { error?: unknown }).error);
    } catch {
      wire = undefined;
    }
    throw wire?.success ? fromWireError(wire.data) : new Error(`HTTP ${response.status}: ${text.slice(0, 500)}`);
  }
}

/** A path segment from a name or id. */
export const segment = encodeURIComponent;
