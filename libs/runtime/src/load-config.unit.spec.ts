import { z } from 'zod';
import { databaseConfigShape, natsConfigShape, toNatsConfig } from './connection-config';
import { loadConfig } from './load-config';
import { integerVariable } from './process-config';

const shape = {
  HOTBED_DATABASE_URL: z.url(),
  HOTBED_HTTP_PORT: integerVariable(1, 65535).default(8080),
};
const nest = (v: { HOTBED_DATABASE_URL: string; HOTBED_HTTP_PORT: number }) => ({
  databaseUrl: v.HOTBED_DATABASE_URL,
  http: { port: v.HOTBED_HTTP_PORT },
});

describe('loadConfig', () => {
  it('returns the nested values, frozen', () => {
    const config = loadConfig(shape, nest, { HOTBED_DATABASE_URL: 'postgres://h/d', HOTBED_HTTP_PORT: '' });
    expect(config).toEqual({ databaseUrl: 'postgres://h/d', http: { port: 8080 } });
    expect(() => {
      config.http.port = 1;
    }).toThrow(TypeError);
  });

  it('reports every problem with its variable', () => {
    expect(() => loadConfig(shape, nest, { HOTBED_HTTP_PORT: 'eighty', HOTBED_HTTP_PROT: '1' })).toThrow(
      [
        'configuration:',
        '  HOTBED_HTTP_PROT: unknown variable; did you mean HOTBED_HTTP_PORT?',
        '  HOTBED_DATABASE_URL: is not set (PostgreSQL as the application role; unset: the embedded server)',
        '  HOTBED_HTTP_PORT: expected a whole number from 1 to 65535',
      ].join('\n'),
    );
  });

  it("lets other apps' variables and other programs' variables be", () => {
    const env = { HOTBED_DATABASE_URL: 'postgres://h/d', HOTBED_BASE_MODEL: '/m', PATH: '/bin' };
    expect(() => loadConfig(shape, nest, env)).not.toThrow();
  });
});

describe('the connections', () => {
  const load = (env: Record<string, string>) =>
    loadConfig(natsConfigShape, (values) => toNatsConfig(values, 'relay'), env);

  it('take user and password from the variables, or from the address', () => {
    expect(load({ HOTBED_NATS_URL: 'nats://h:4222' })).toEqual({ url: 'nats://h:4222' });
    expect(load({ HOTBED_NATS_URL: 'h:4222', HOTBED_NATS_USER: 'u', HOTBED_NATS_PASSWORD: 'p' })).toEqual({
      url: 'h:4222',
      user: 'u',
      password: 'p',
    });
  });

  it('name what is wrong with an address or a file', () => {
    expect(() => load({ HOTBED_NATS_URL: 'nats://', HOTBED_NATS_CREDENTIALS_FILE: '/nowhere' })).toThrow(
      /HOTBED_NATS_URL: expected nats.*\n.*HOTBED_NATS_CREDENTIALS_FILE: expected a readable JSON file/,
    );
    expect(() => loadConfig(databaseConfigShape, (v) => v, { HOTBED_DATABASE_URL: 'mysql://h' })).toThrow(
      'HOTBED_DATABASE_URL: expected postgresql://',
    );
  });
});
