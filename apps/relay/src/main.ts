import 'reflect-metadata';
import { runApp } from '#hotbed/runtime';
import { createRelayApp } from './relay.app';

void runApp('relay', createRelayApp);
