import { NotFound, type CommandReply, type CommandRequest } from '#hotbed/contracts';
import type { AsOfStamp } from '../projection/as-of';
import type { VersionsReadModel } from '../versions/versions.read-model';
import type { LineageReadModel } from './lineage.read-model';

/** Lineage both ways: from a version to its data, from a record to its versions. */
export class LineageQueries {
  constructor(
    private readonly lineage: LineageReadModel,
    private readonly versions: VersionsReadModel,
    private readonly asOf: AsOfStamp,
  ) {}

  async ofVersion(
    tenantId: string,
    request: CommandRequest<'registry', 'lineage-of-version'>,
  ): Promise<CommandReply<'registry', 'lineage-of-version'>> {
    const stamp = await this.asOf.now();
    const { adapterId } = await this.versions.adapter(tenantId, request.adapter);
    const version = await this.versions.version(tenantId, adapterId, request.version);
    const totals = await this.lineage.totals(tenantId, adapterId, version.opIndex);
    const { rows, next } = await this.lineage.influences(tenantId, adapterId, version.opIndex, request.page);
    return {
      ...stamp,
      version,
      distinctRecords: totals.records,
      distinctRollouts: totals.rollouts,
      influences: rows,
      next,
    };
  }

  async versionsOfRecord(
    tenantId: string,
    request: CommandRequest<'registry', 'versions-of-record'>,
  ): Promise<CommandReply<'registry', 'versions-of-record'>> {
    const stamp = await this.asOf.now();
    if (!(await this.lineage.recordExists(tenantId, request.recordId))) throw new NotFound('record', request.recordId);
    return {
      ...stamp,
      recordId: request.recordId,
      versions: await this.lineage.versionsOfRecord(tenantId, request.recordId),
    };
  }
}
