import 'reflect-metadata';
import { runApp } from '#hotbed/runtime';
import { createOrchestratorApp } from './orchestrator.app';

void runApp('orchestrator', createOrchestratorApp);
