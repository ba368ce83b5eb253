import { nestApp, type CreateApp } from '#hotbed/runtime';
import { loadRelayConfig } from './relay.config';
import { RelayModule } from './relay.module';

export const createRelayApp: CreateApp = (env, host) =>
  nestApp('relay', RelayModule.register(loadRelayConfig(env), host), host);
