import { createHash } from 'node:crypto';

/**
 * Which records of a window a step learns from: `promptsPerStep` ordinals in 0..records-1, by prompt index.
 *
 * The run walks through the window in epochs. Epoch e visits ordinal (start + i * stride) mod records for
 * i = 0..records-1, where stride is coprime to records, so every epoch visits each record exactly once and after any
 * number of steps no record was used more than once more often than another. Start and stride come from
 * SHA-256('hotbed.batch.1' || u32 run ordinal || u64 epoch), integers big-endian: runs and epochs differ in order,
 * nothing else enters, and no list of the window has to be shuffled or kept.
 * @param records usable records of the window, >= 1
 */
export function batchOrdinals(records: number, runOrdinal: number, step: number, promptsPerStep: number): number[] {
  let epoch = -1;
  let walk = { start: 0, stride: 1 };
  return Array.from({ length: promptsPerStep }, (_, promptIndex) => {
    const visit = step * promptsPerStep + promptIndex;
    const epochOfVisit = Math.floor(visit / records);
    if (epochOfVisit !== epoch) {
      epoch = epochOfVisit;
      walk = walkOf(records, runOrdinal, epoch);
    }
    const position = BigInt(visit % records);
    return Number((BigInt(walk.start) + position * BigInt(walk.stride)) % BigInt(records));
  });
}

function walkOf(records: number, runOrdinal: number, epoch: number): { start: number; stride: number } {
  const numbers = Buffer.alloc(12);
  numbers.writeUInt32BE(runOrdinal, 0);
  numbers.writeBigUInt64BE(BigInt(epoch), 4);
  const digest = createHash('sha256').update('hotbed.batch.1').update(numbers).digest();
  const start = Number(digest.readBigUInt64BE(0) % BigInt(records));
  let stride = 1 + Number(digest.readBigUInt64BE(8) % BigInt(records));
  while (greatestCommonDivisor(stride, records) !== 1) stride = (stride % records) + 1;
  return { start, stride };
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
