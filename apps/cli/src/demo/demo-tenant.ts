import type { AdapterView, CommandReply, ExperimentSummary, ExperimentView } from '#hotbed/contracts';
import { Broker, IngestPublisher } from '#hotbed/messaging';
import { ApiClient, segment } from '../api/api-client';
import type { DemoPlatform } from './demo-platform';
import type { PlannedTenant } from './plan';
import { SKILLS, promptOf } from './skills';

/** Seeds the measurements: the same words, the same draws, before and after. */
const MEASURE_SEED = '20261';

interface DataStream {
  dataStreamId: string;
}

/** One tenant of the demo: its own key, stream, producer, experiment. */
export class DemoTenant {
  private constructor(
    readonly plan: PlannedTenant,
    readonly tenantId: string,
    readonly api: ApiClient,
    readonly experiment: ExperimentSummary,
    private readonly dataStreamId: string,
    private readonly platform: DemoPlatform,
  ) {}

  static async create(platform: DemoPlatform, plan: PlannedTenant): Promise<DemoTenant> {
    const admin = new ApiClient(platform.url, platform.apiKey);
    const tenantId = await newTenant(admin, plan.name);
    const { key } = await admin.post<{ key: string }>(`/v1/tenants/${segment(tenantId)}/keys`, { label: 'demo' });
    const api = new ApiClient(platform.url, key);
    const { dataStreamId } = await api.post<DataStream>('/v1/streams', { name: plan.experiment.dataStream });
    const experiment = await api.post<ExperimentSummary>('/v1/experiments', plan.experiment);
    return new DemoTenant(plan, tenantId, api, experiment, dataStreamId, platform);
  }

  /** Publishes the tenant's records on JetStream, as its producer: the last one starts the training. */
  async produce(): Promise<void> {
    const credentials = await this.platform.broker.tenant(this.tenantId);
    const broker = await Broker.connect({
      url: this.platform.natsUrl,
      ...(credentials?.producer ?? {}),
      name: `producer-${this.plan.name}`,
    });
    try {
      const publisher = new IngestPublisher(broker);
      for (const { key, content } of this.plan.records) {
        await untilTaken(() => publisher.publish(this.tenantId, this.dataStreamId, content, key));
      }
    } finally {
      await broker.close();
    }
  }

  view(): Promise<ExperimentView> {
    return this.api.get<ExperimentView>(`/v1/experiments/${segment(this.experiment.experimentId)}`);
  }

  versions(): Promise<CommandReply<'registry', 'list-versions'>> {
    return this.api.get(`/v1/adapters/${segment(this.experiment.adapterName)}/versions`, { limit: 1000 });
  }

  /** Resolves once `latest` names the version that the run ended with: projections follow the log a moment later. */
  async untilPublished(version: number): Promise<void> {
    const path = `/v1/adapters/${segment(this.experiment.adapterName)}`;
    const deadline = Date.now() + TAKEN_TIMEOUT_MS;
    for (;;) {
      const { adapter } = await this.api.get<{ adapter: AdapterView }>(path);
      if ((adapter.aliases['latest'] ?? 0) >= version) return;
      if (Date.now() > deadline) throw new Error(`${this.plan.name}: version ${version} is not published`);
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }

  /** Share of exact matches at temperature 1 over the words, one completion each. @param model null = the plain base */
  async measure(model: string | null, words: readonly string[]): Promise<number> {
    const answers = await this.sample(model, words.map(promptOf), 1);
    return answers.filter((answer, i) => answer === SKILLS[this.plan.skill](words[i]!)).length / words.length;
  }

  async sample(model: string | null, prompts: readonly string[], temperature: number): Promise<string[]> {
    const path = model === null ? '/v1/base/sample' : `/v1/adapters/${segment(model)}/sample`;
    const { prompts: answers } = await this.api.post<{
      prompts: CommandReply<'orchestrator', 'read-samples'>['prompts'];
    }>(path, { prompts, temperature, seed: MEASURE_SEED, maxTokens: this.plan.experiment.maxTokens });
    return answers.map((prompt) => prompt.completions[0]?.text ?? '');
  }
}

/** A database that is kept between runs has the plain name already. */
async function newTenant(admin: ApiClient, name: string): Promise<string> {
  for (let attempt = 1; ; attempt++) {
    const tenant = await admin.post<CommandReply<'registry', 'create-tenant'>>('/v1/tenants', {
      name: attempt === 1 ? name : `${name}-${attempt}`,
    });
    if (tenant.created) return tenant.tenantId;
  }
}

const TAKEN_TIMEOUT_MS = 30_000;
const RETRY_MS = 100;

/** A new tenant's ingest stream is made a moment after the tenant; a producer retries with the same key. */
async function untilTaken(publish: () => Promise<unknown>): Promise<void> {
  const deadline = Date.now() + TAKEN_TIMEOUT_MS;
  for (;;) {
    try {
      await publish();
      return;
    } catch (error) {
      if (Date.now() > deadline || !(error instanceof Error && 'retryable' in error && error.retryable === true))
        throw error;
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}
