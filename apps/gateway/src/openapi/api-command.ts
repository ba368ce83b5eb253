import { applyDecorators } from '@nestjs/common';
import { ApiBearerAuth, ApiBody, ApiOperation, ApiResponse } from '@nestjs/swagger';
import { COMMANDS, type CommandApp, type CommandName } from '#hotbed/contracts';
import { z } from 'zod';

type JsonSchema = Record<string, unknown>;

/** Describes a route by the schemas of the command that it sends: the description cannot drift from the check. */
export function ApiCommand<A extends CommandApp>(app: A, command: CommandName<A>, summary: string): MethodDecorator {
  const { request, reply } = COMMANDS[app][command] as unknown as { request: z.ZodType; reply: z.ZodType };
  return applyDecorators(
    ApiBearerAuth(),
    ApiOperation({ summary, operationId: `${app}.${command}` }),
    ApiBody({ schema: jsonSchema(request, 'input'), required: false }),
    ApiResponse({ status: '2XX', description: 'Done', schema: jsonSchema(reply, 'output') }),
    ApiResponse({ status: '4XX', description: 'Refused: `error` names the kind, code and fields' }),
  );
}

function jsonSchema(schema: z.ZodType, io: 'input' | 'output'): JsonSchema {
  return z.toJSONSchema(schema, { io, unrepresentable: 'any', target: 'openapi-3.0' });
}
