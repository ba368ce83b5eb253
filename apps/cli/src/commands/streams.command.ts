import { readFileSync } from 'node:fs';
import type { Command } from 'commander';
import {
  InvalidInput,
  parseInput,
  recordContentSchema,
  type CommandReply,
  type DataStreamView,
} from '#hotbed/contracts';
import { segment, type ApiClient } from '../api/api-client';
import { print } from '../terminal/print';
import { table } from '../terminal/table';

/** Records sent in one request. */
const CHUNK = 200;

export function addStreamsCommands(program: Command, api: () => ApiClient): void {
  const streams = program.command('streams').description('data streams and their records');

  streams
    .command('create <name>')
    .description('create a data stream')
    .option('--from <file>', 'append records from a JSONL file: one {"prompt": ..., "answer": ...} a line')
    .action(async (name: string, { from }: { from?: string }) => {
      const records = from === undefined ? [] : readRecords(from);
      const stream = await api().post<DataStreamView>('/v1/streams', { name });
      const appended = await appendRecords(api(), name, records);
      print(
        { ...stream, records: appended.received },
        () => `created stream ${name} with ${appended.received} records`,
      );
    });

  streams
    .command('append <stream> <file>')
    .description('append records from a JSONL file')
    .action(async (stream: string, file: string) => {
      const result = await appendRecords(api(), stream, readRecords(file));
      print(result, () => `${result.received} records received, ${result.duplicates} already there`);
    });

  streams
    .command('list')
    .description('list data streams')
    .action(async () => {
      const { dataStreams } = await api().get<CommandReply<'ingest', 'list-data-streams'>>('/v1/streams', {
        limit: 1000,
      });
      print(dataStreams, () =>
        table(
          ['name', 'records', 'rejected', 'id'],
          dataStreams.map((s) => [s.name, s.records, s.rejected, s.dataStreamId]),
        ),
      );
    });

  streams
    .command('show <stream>')
    .description('one data stream and the subject of its producers')
    .action(async (stream: string) => {
      const view = await api().get<DataStreamView>(`/v1/streams/${segment(stream)}`);
      print(
        view,
        () => `${view.name}: ${view.records} records, ${view.rejected} rejected\nproducers publish on ${view.subject}`,
      );
    });
}

interface FileRecord {
  key: string | null;
  content: unknown;
}

/** A line's own `key` is the record's identity; appending the file twice adds nothing twice then. @throws InvalidInput naming the line */
export function readRecords(file: string): FileRecord[] {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw new InvalidInput([{ path: file, message: error instanceof Error ? error.message : String(error) }]);
  }
  return text.split('\n').flatMap((line, i) => (line.trim() === '' ? [] : [recordOfLine(line, `${file}:${i + 1}`)]));
}

function recordOfLine(line: string, where: string): FileRecord {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (error) {
    throw new InvalidInput([
      { path: where, message: `not JSON: ${error instanceof Error ? error.message : String(error)}` },
    ]);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new InvalidInput([{ path: where, message: 'expected an object like {"prompt": "...", "answer": "..."}' }]);
  }
  const { key, ...content } = value as Record<string, unknown>;
  // Checked here as well, so that a wrong line is named before anything is sent.
  parseInput(recordContentSchema, content, where);
  if (key !== undefined && typeof key !== 'string')
    throw new InvalidInput([{ path: `${where} key`, message: 'expected text' }]);
  return { key: key ?? null, content };
}

async function appendRecords(api: ApiClient, stream: string, records: FileRecord[]) {
  let received = 0;
  let duplicates = 0;
  for (let i = 0; i < records.length; i += CHUNK) {
    const reply = await api.post<CommandReply<'ingest', 'append-records'>>(`/v1/streams/${segment(stream)}/records`, {
      records: records.slice(i, i + CHUNK),
    });
    received += reply.records.filter((r) => r.outcome === 'received').length;
    duplicates += reply.records.filter((r) => r.outcome === 'duplicate').length;
  }
  return { received, duplicates };
}
