import { type AnyStoredEvent, type EventStore } from '#hotbed/contracts';

/** One rollout as the log has it, keyed by where it stands in its experiment: no id in it. */
export interface RolloutRecord {
  /** `run/step/prompt/sample` */
  key: string;
  /** Bytes of the token ids, base64. */
  tokens: string;
  /** Bytes of the fp32 log-probabilities, base64: equal text is equal bits. */
  policyLogprobs: string;
  samplingLogprobs: string;
}

export interface ExperimentRecord {
  rollouts: RolloutRecord[];
  /** Of the adapter's state after its last operation. */
  stateDigest: string;
  operations: number;
  sampledTokens: number;
}

/** Reads everything that an experiment sampled, and where its adapter ended, from the log. */
export async function readExperiment(
  events: EventStore,
  experimentId: string,
  adapterId: string,
): Promise<ExperimentRecord> {
  const rollouts = rolloutRecords(await events.readStream(`rollouts:${experimentId}`));
  const applied = (await events.readStream(`adapter:${adapterId}`)).filter((e) => e.type === 'OperationApplied');
  const last = applied.at(-1);
  if (last === undefined) throw new Error(`adapter ${adapterId} has no applied operation`);
  return {
    rollouts,
    stateDigest: last.payload.stateDigest,
    operations: applied.length,
    sampledTokens: rollouts.reduce((sum, r) => sum + Buffer.byteLength(r.tokens, 'base64') / 4, 0),
  };
}

function rolloutRecords(events: readonly AnyStoredEvent[]): RolloutRecord[] {
  const steps = new Map<string, string>();
  const records: RolloutRecord[] = [];
  for (const event of events) {
    if (event.type === 'RolloutsRequested') {
      steps.set(event.payload.requestId, `${event.payload.runOrdinal}/${event.payload.step}`);
    }
    if (event.type !== 'RolloutsCompleted') continue;
    for (const rollout of event.payload.rollouts) {
      records.push({
        key: `${steps.get(event.payload.requestId)}/${event.payload.promptIndex}/${rollout.sampleIndex}`,
        tokens: rollout.tokens.base64,
        policyLogprobs: rollout.policyLogprobs.base64,
        samplingLogprobs: rollout.samplingLogprobs.base64,
      });
    }
  }
  return records.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
}

export interface Comparison {
  equal: boolean;
  rollouts: number;
  tokens: number;
  /** The first thing that differs, in words; null when nothing does. */
  difference: string | null;
}

/** Every token, every log-probability bit, and the final state. */
export function compareExperiments(together: ExperimentRecord, alone: ExperimentRecord): Comparison {
  const difference = firstDifference(together, alone);
  return {
    equal: difference === null,
    rollouts: together.rollouts.length,
    tokens: together.sampledTokens,
    difference,
  };
}

function firstDifference(together: ExperimentRecord, alone: ExperimentRecord): string | null {
  if (together.rollouts.length !== alone.rollouts.length) {
    return `${together.rollouts.length} rollouts together, ${alone.rollouts.length} alone`;
  }
  for (const [i, one] of together.rollouts.entries()) {
    const other = alone.rollouts[i]!;
    for (const field of ['key', 'tokens', 'policyLogprobs', 'samplingLogprobs'] as const) {
      if (one[field] !== other[field]) return `rollout ${one.key}: ${field} differ`;
    }
  }
  if (together.operations !== alone.operations)
    return `${together.operations} operations together, ${alone.operations} alone`;
  if (together.stateDigest !== alone.stateDigest) return 'the final state digests differ';
  return null;
}
