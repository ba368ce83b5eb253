import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { startDemoPlatform } from './demo-platform';
import { DemoTenant } from './demo-tenant';
import type { PlannedTenant } from './plan';
import { readExperiment } from './rollout-record';
import { untilTrained } from './until-trained';

/** What the proof hands over: records and configuration, nothing that was sampled. */
const planSchema = z.object({
  name: z.string(),
  skill: z.string(),
  experiment: z.record(z.string(), z.json()),
  records: z.array(z.object({ key: z.string(), content: z.object({ prompt: z.string(), answer: z.string() }) })),
});

/** Runs one tenant on a platform of its own in this process, with nobody beside it; prints what the log recorded as JSON. */
export async function runAlone(planFile: string): Promise<void> {
  const plan = planSchema.parse(JSON.parse(readFileSync(planFile, 'utf8'))) as unknown as PlannedTenant;
  const platform = await startDemoPlatform('alone', () => undefined);
  try {
    const tenant = await DemoTenant.create(platform, plan);
    await tenant.produce();
    await untilTrained([tenant], () => undefined);
    const { experimentId, adapterId } = tenant.experiment;
    const record = await readExperiment(platform.events, experimentId, adapterId);
    await new Promise<void>((resolve) => process.stdout.write(`${JSON.stringify(record)}\n`, () => resolve()));
  } finally {
    await platform.end(false);
  }
}
