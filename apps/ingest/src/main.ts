import 'reflect-metadata';
import { runApp } from '#hotbed/runtime';
import { createIngestApp } from './ingest.app';

void runApp('ingest', createIngestApp);
