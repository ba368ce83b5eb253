import { request } from 'node:http';

/** What the door says is what a test is about: its shape is expected there, not promised here. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Unchecked = any;

export interface Answer<T = unknown> {
  status: number;
  headers: Headers;
  text: string;
  /** Parsed, where the answer is JSON. */
  body: T;
}

export interface Refusal {
  status: number;
  kind: string;
  code: string;
  message: string;
  fields: string[];
}

/** The platform's HTTP door as a stranger's program sees it: plain requests, plain answers. */
export class Door {
  constructor(
    readonly url: string,
    /** null = none is sent. */
    readonly key: string | null,
  ) {}

  get<T = Unchecked>(path: string): Promise<Answer<T>> {
    return this.ask<T>('GET', path);
  }

  post<T = Unchecked>(path: string, body: unknown = {}): Promise<Answer<T>> {
    return this.ask<T>('POST', path, JSON.stringify(body));
  }

  /** @param body sent as it is, said to be JSON */
  async ask<T = Unchecked>(method: string, path: string, body?: string): Promise<Answer<T>> {
    const response = await fetch(new URL(path, this.url), { method, headers: this.headers(body), body: body ?? null });
    const text = await response.text();
    const isJson = response.headers.get('content-type')?.startsWith('application/json') === true;
    return {
      status: response.status,
      headers: response.headers,
      text,
      body: (isJson ? JSON.parse(text) : null) as T,
    };
  }

  /** What was made or read. @throws Error with the answer, where the door refuses */
  async made<T = Unchecked>(method: 'GET' | 'POST', path: string, body: unknown = {}): Promise<T> {
    const answer = await (method === 'GET' ? this.get<T>(path) : this.post<T>(path, body));
    if (answer.status < 300) return answer.body;
    throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
  }

  /** A refusal, in the parts that a program can act on. @throws Error where the door does not refuse */
  async refusal(method: string, path: string, body?: unknown): Promise<Refusal> {
    return refusalOf(await this.ask(method, path, body === undefined ? undefined : JSON.stringify(body)));
  }

  /**
   * Reads server-sent events until `enough` of what came, as text.
   * @throws Error after the deadline
   */
  async events(path: string, enough: (text: string) => boolean, deadlineMs = 30_000): Promise<string> {
    const response = await fetch(new URL(path, this.url), {
      headers: this.headers(),
      signal: AbortSignal.timeout(deadlineMs),
    });
    if (response.body === null || response.status !== 200) throw new Error(`${path}: ${response.status}`);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    while (!enough(text)) {
      const { done, value } = await reader.read();
      if (done) throw new Error(`the feed ended after: ${text.slice(-500)}`);
      text += value;
    }
    await reader.cancel();
    return text;
  }

  /** Says that a JSON body of so many bytes will come, sends none of it, and reads the answer. */
  announce(path: string, bytes: number): Promise<{ status: number; text: string }> {
    return new Promise((resolve, reject) => {
      const headers = { ...this.headers(''), 'content-length': String(bytes) };
      const asked = request(new URL(path, this.url), { method: 'POST', headers }, (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (part: string) => (text += part));
        response.once('end', () => {
          asked.destroy();
          resolve({ status: response.statusCode ?? 0, text });
        });
      });
      asked.once('error', reject);
      asked.flushHeaders();
    });
  }

  private headers(body?: string): Record<string, string> {
    return {
      ...(this.key === null ? {} : { authorization: `Bearer ${this.key}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    };
  }
}

export function refusalOf(answer: Answer): Refusal {
  const { error } = (answer.body ?? {}) as {
    error?: { kind: string; code: string; message: string; fields?: { path: string }[] };
  };
  if (answer.status < 400 || error === undefined) throw new Error(`no refusal: ${answer.status} ${answer.text}`);
  const { kind, code, message, fields = [] } = error;
  return { status: answer.status, kind, code, message, fields: fields.map((field) => field.path) };
}
