import 'reflect-metadata';
import { runApp } from '#hotbed/runtime';
import { createRegistryApp } from './registry.app';

void runApp('registry', createRegistryApp);
