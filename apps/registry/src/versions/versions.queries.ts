import type { CommandReply, CommandRequest } from '#hotbed/contracts';
import type { AsOfStamp } from '../projection/as-of';
import type { VersionsReadModel } from './versions.read-model';

/** Questions about adapters, versions and aliases. */
export class VersionsQueries {
  constructor(
    private readonly versions: VersionsReadModel,
    private readonly asOf: AsOfStamp,
  ) {}

  /** `<adapter>` with an alias, a version number, or nothing (= latest); now or as of a time. */
  async resolve(
    tenantId: string,
    request: CommandRequest<'registry', 'resolve'>,
  ): Promise<CommandReply<'registry', 'resolve'>> {
    const stamp = await this.asOf.now();
    const { adapterId } = await this.versions.adapter(tenantId, request.adapter);
    const ref = request.ref ?? 'latest';
    const number = /^[1-9][0-9]{0,8}$/.test(ref)
      ? Number(ref)
      : await this.versions.aliasTarget(tenantId, adapterId, ref, request.asOfMs);
    return { ...stamp, version: await this.versions.version(tenantId, adapterId, number) };
  }

  async getAdapter(tenantId: string, request: CommandRequest<'registry', 'get-adapter'>) {
    const stamp = await this.asOf.now();
    return { ...stamp, adapter: await this.versions.adapter(tenantId, request.adapter) };
  }

  async listAdapters(tenantId: string, request: CommandRequest<'registry', 'list-adapters'>) {
    const stamp = await this.asOf.now();
    const { rows, next } = await this.versions.adapters(tenantId, request.page);
    return { ...stamp, adapters: rows, next };
  }

  async listVersions(tenantId: string, request: CommandRequest<'registry', 'list-versions'>) {
    const stamp = await this.asOf.now();
    const { adapterId } = await this.versions.adapter(tenantId, request.adapter);
    const { rows, next } = await this.versions.versions(tenantId, adapterId, request.page);
    return { ...stamp, versions: rows, next };
  }

  async aliasHistory(tenantId: string, request: CommandRequest<'registry', 'alias-history'>) {
    const stamp = await this.asOf.now();
    const { adapterId } = await this.versions.adapter(tenantId, request.adapter);
    return { ...stamp, moves: await this.versions.aliasMoves(tenantId, adapterId, request.alias) };
  }
}
