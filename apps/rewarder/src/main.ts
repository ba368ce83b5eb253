import 'reflect-metadata';
import { runApp } from '#hotbed/runtime';
import { createRewarderApp } from './rewarder.app';

void runApp('rewarder', createRewarderApp);
