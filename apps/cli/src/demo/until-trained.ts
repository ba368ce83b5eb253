import type { ExperimentView } from '#hotbed/contracts';
import type { DemoTenant } from './demo-tenant';

const LOOK_MS = 500;
/** Nothing at all happened for this long: better an error than an endless wait. */
const SILENCE_MS = 120_000;

/** Looks at every experiment until each has finished its run. @throws Error naming the tenant that failed or stands still */
export async function untilTrained(
  tenants: readonly DemoTenant[],
  onLook: (views: readonly ExperimentView[]) => void,
): Promise<ExperimentView[]> {
  let lastChangeMs = Date.now();
  let steps = -1;
  for (;;) {
    const views = await Promise.all(tenants.map((tenant) => tenant.view()));
    onLook(views);
    for (const [i, view] of views.entries()) {
      if (view.failure !== null)
        throw new Error(`${tenants[i]!.plan.name}: ${view.failure.code}: ${view.failure.message}`);
    }
    if (views.every(hasEnded)) return views;
    const total = views.reduce((sum, view) => sum + view.steps.length, 0);
    if (total !== steps) {
      steps = total;
      lastChangeMs = Date.now();
    } else if (Date.now() - lastChangeMs > SILENCE_MS) {
      const waiting = views
        .filter((v) => v.steps.length < v.stepsPerRun)
        .map((v) => `${v.name} (${v.stalled ?? v.state})`);
      throw new Error(`no step was finished for ${SILENCE_MS / 1000} s; waiting for ${waiting.join(', ')}`);
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}

/** Its run is over and the version that the run ends with is saved. */
function hasEnded(view: ExperimentView): boolean {
  return view.steps.length >= view.stepsPerRun && view.state !== 'training' && view.latestVersion !== null;
}
