import 'reflect-metadata';
import { runApp } from '#hotbed/runtime';
import { createGatewayApp } from './gateway.app';

void runApp('gateway', createGatewayApp);
