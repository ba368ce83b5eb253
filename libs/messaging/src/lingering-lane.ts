import { setTimeout as pause } from 'node:timers/promises';
import type { ConsumerLane } from '#hotbed/contracts';

/**
 * A lane that waits a moment before each transaction, so that messages arriving close together share the next one. For
 * events that come in bursts, such as the groups of one training step: a few milliseconds later, several times less work.
 * Each lane that waits holds one place of its consumer's `concurrency`.
 */
export function lingeringLane(lane: ConsumerLane, lingerMs: number): ConsumerLane {
  return {
    advance: async (consumer, streamId, throughVersion, handler) => {
      await pause(lingerMs);
      return lane.advance(consumer, streamId, throughVersion, handler);
    },
    recordFailure: (consumer, streamId, version, error) => lane.recordFailure(consumer, streamId, version, error),
  };
}
