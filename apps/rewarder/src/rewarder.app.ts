import { nestApp, type CreateApp } from '#hotbed/runtime';
import { loadRewarderConfig } from './rewarder.config';
import { RewarderModule, openFoundations } from './rewarder.module';

export const createRewarderApp: CreateApp = async (env, host) => {
  const config = loadRewarderConfig(env);
  return nestApp('rewarder', RewarderModule.register(config, await openFoundations(config, host), host), host);
};
