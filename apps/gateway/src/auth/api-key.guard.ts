import { createHash } from 'node:crypto';
import { CanActivate, ExecutionContext, Inject, Injectable, SetMetadata } from '@nestjs/common';
import { Reflector } from '@nestjs/core';
import { DomainError } from '#hotbed/contracts';
import { COMMANDS_PORT, PLATFORM, type Commands } from '../http/commands';
import type { AuthenticatedRequest, Caller } from './caller';

const PUBLIC = 'hotbed:public';
const ADMIN = 'hotbed:admin';

/** A route that needs no key: health, readiness, metrics, the API description. */
export const Public = () => SetMetadata(PUBLIC, true);
/** A route for keys of role `admin`. */
export const AdminOnly = () => SetMetadata(ADMIN, true);

/** A revoked key works at most this much longer. */
export const KEY_CACHE_MS = 5_000;
const KEY_CACHE_ENTRIES = 10_000;

/** Finds the caller behind `Authorization: Bearer <key>` (or `X-API-Key`). Only the key's digest is looked up or kept. */
@Injectable()
export class ApiKeyGuard implements CanActivate {
  private readonly known = new Map<string, { caller: Caller; untilMs: number }>();

  constructor(
    @Inject(COMMANDS_PORT) private readonly commands: Commands,
    private readonly reflector: Reflector,
  ) {}

  async canActivate(context: ExecutionContext): Promise<boolean> {
    const targets = [context.getHandler(), context.getClass()];
    if (this.reflector.getAllAndOverride<boolean>(PUBLIC, targets)) return true;
    const request = context.switchToHttp().getRequest<AuthenticatedRequest>();
    request.caller = await this.callerOf(presentedKey(request));
    if (this.reflector.getAllAndOverride<boolean>(ADMIN, targets) && request.caller.role !== 'admin') {
      throw new DomainError('Forbidden', 'admin_only', 'this needs an API key of role admin');
    }
    return true;
  }

  private async callerOf(key: string): Promise<Caller> {
    const keyDigest = createHash('sha256').update(key).digest('hex');
    const cached = this.known.get(keyDigest);
    if (cached !== undefined && cached.untilMs > Date.now()) return cached.caller;
    this.known.delete(keyDigest);
    const caller = await this.commands.request(PLATFORM, 'registry', 'authenticate', { keyDigest });
    if (this.known.size >= KEY_CACHE_ENTRIES) this.known.clear();
    this.known.set(keyDigest, { caller, untilMs: Date.now() + KEY_CACHE_MS });
    return caller;
  }
}

function presentedKey(request: AuthenticatedRequest): string {
  const bearer = /^Bearer ([\x21-\x7e]{1,256})$/i.exec(request.headers.authorization ?? '')?.[1];
  const header = request.headers['x-api-key'];
  const key = bearer ?? (typeof header === 'string' && header.length <= 256 ? header : undefined);
  if (key !== undefined && key.length > 0) return key;
  throw new DomainError('Unauthenticated', 'missing_key', 'send the API key as "Authorization: Bearer <key>"');
}
