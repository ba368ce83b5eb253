import { nestApp, type CreateApp } from '#hotbed/runtime';
import { loadOrchestratorConfig } from './orchestrator.config';
import { OrchestratorModule, openFoundations } from './orchestrator.module';

export const createOrchestratorApp: CreateApp = async (env, host) => {
  const config = loadOrchestratorConfig(env);
  return nestApp('orchestrator', OrchestratorModule.register(config, await openFoundations(config, host), host), host);
};
