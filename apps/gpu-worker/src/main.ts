import 'reflect-metadata';
import { runApp } from '#hotbed/runtime';
import { createGpuWorkerApp } from './gpu-worker.app';

void runApp('gpu-worker', createGpuWorkerApp);
