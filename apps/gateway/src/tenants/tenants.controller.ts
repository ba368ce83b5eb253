import { createHash, randomBytes } from 'node:crypto';
import { Body, Controller, Delete, Inject, Param, Post } from '@nestjs/common';
import { idSchema, parseInput } from '#hotbed/contracts';
import { z } from 'zod';
import { AdminOnly } from '../auth/api-key.guard';
import { type Caller, FromCaller } from '../auth/caller';
import { COMMANDS_PORT, type Commands, asPlatform, unchecked } from '../http/commands';
import { ApiCommand } from '../openapi/api-command';

const issueKeySchema = z.strictObject({
  role: z.enum(['admin', 'member']).default('member'),
  label: z.string().max(200).default(''),
});
const issuedKeySchema = z.object({ keyId: idSchema, key: z.string() });

@AdminOnly()
@Controller('v1/tenants')
export class TenantsController {
  constructor(@Inject(COMMANDS_PORT) private readonly commands: Commands) {}

  @Post()
  @ApiCommand('registry', 'create-tenant', 'Create a tenant (idempotent by name)')
  create(@FromCaller() caller: Caller, @Body() body: unknown) {
    return this.commands.request(asPlatform(caller), 'registry', 'create-tenant', unchecked(body));
  }

  /** The key is shown in this answer and never again: the log keeps its digest. */
  @Post(':tenant/keys')
  @ApiCommand('registry', 'issue-api-key', 'Issue an API key; the answer shows it once', {
    params: { tenant: 'tenantId' },
    body: issueKeySchema,
    reply: issuedKeySchema,
  })
  async issueKey(
    @FromCaller() caller: Caller,
    @Param('tenant') tenantId: string,
    @Body() body: unknown,
  ): Promise<z.infer<typeof issuedKeySchema>> {
    const { role, label } = parseInput(issueKeySchema, body ?? {});
    const key = `hb_${randomBytes(32).toString('base64url')}`;
    const keyDigest = createHash('sha256').update(key).digest('hex');
    const { keyId } = await this.commands.request(asPlatform(caller), 'registry', 'issue-api-key', {
      tenantId,
      role,
      label,
      keyDigest,
    });
    return { keyId, key };
  }

  @Delete('keys/:key')
  @ApiCommand('registry', 'revoke-api-key', 'Revoke an API key', { params: { key: 'keyId' } })
  revokeKey(@FromCaller() caller: Caller, @Param('key') keyId: string) {
    return this.commands.request(asPlatform(caller), 'registry', 'revoke-api-key', { keyId });
  }
}
