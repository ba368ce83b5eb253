import { applyDecorators } from '@nestjs/common';
import { ApiBearerAuth, ApiBody, ApiOperation, ApiParam, ApiQuery, ApiResponse } from '@nestjs/swagger';
import { COMMANDS, pageSchema, wireErrorSchema, type CommandApp, type CommandName } from '#hotbed/contracts';
import { z } from 'zod';

type JsonSchema = Record<string, unknown>;

export interface ApiCommandOptions {
  /** Name in the path -> field of the command that it fills. */
  params?: Readonly<Record<string, string>>;
  /** Fields of the command that the query fills; `page` stands there as `limit` and `after`. */
  query?: readonly string[];
  /** What the door takes, where that is not the rest of the command's fields. */
  body?: z.ZodType;
  /** What the door answers, where that is not the command's reply. */
  reply?: z.ZodType;
  /** Of its own where several routes send one command. */
  operationId?: string;
}

/**
 * Describes a route by the schemas that check it. Each field of the command stands in one place: in the path, in the
 * query, or, when in neither, in the body. A route whose door takes or gives something else names the schema of that.
 */
export function ApiCommand<A extends CommandApp>(
  app: A,
  command: CommandName<A>,
  summary: string,
  { params = {}, query = [], body, reply, operationId }: ApiCommandOptions = {},
): MethodDecorator {
  const schemas = COMMANDS[app][command] as unknown as { request: z.ZodObject; reply: z.ZodType };
  const elsewhere = new Set([...Object.values(params), ...query]);
  const rest = Object.keys(schemas.request.shape).filter((field) => !elsewhere.has(field));
  const taken =
    body ?? z.strictObject(Object.fromEntries(rest.map((field) => [field, fieldOf(schemas.request, field)])));
  return applyDecorators(
    ApiBearerAuth(),
    ApiOperation({ summary, operationId: operationId ?? `${app}.${command}` }),
    ...Object.entries(params).map(([name, field]) =>
      ApiParam({ name, schema: given(fieldOf(schemas.request, field)) }),
    ),
    ...query.flatMap((field) => queries(schemas.request, field)),
    ...(body === undefined && rest.length === 0
      ? []
      : [ApiBody({ schema: jsonSchema(taken, 'input'), required: !taken.safeParse({}).success })]),
    ApiResponse({ status: '2XX', description: 'Done', schema: jsonSchema(reply ?? schemas.reply, 'output') }),
    ApiRefusal(),
  );
}

/** What every door answers when it refuses. */
export function ApiRefusal(): MethodDecorator {
  return ApiResponse({
    status: '4XX',
    description: 'Refused: `error` names the kind, code and fields',
    schema: jsonSchema(z.object({ error: wireErrorSchema }), 'output'),
  });
}

function queries(request: z.ZodObject, field: string): MethodDecorator[] {
  const schema = fieldOf(request, field);
  if (field !== 'page')
    return [ApiQuery({ name: field, required: !schema.safeParse(undefined).success, schema: given(schema) })];
  const { limit } = pageSchema.parse(schema.parse(undefined));
  return [
    ApiQuery({
      name: 'limit',
      required: false,
      description: 'Rows of one answer',
      schema: { ...given(pageSchema.shape.limit), default: limit },
    }),
    ApiQuery({
      name: 'after',
      required: false,
      description: '`next` of the answer before; left out for the first page',
      schema: given(pageSchema.shape.after),
    }),
  ];
}

/** @throws Error at start: a route that names a field which its command does not have */
function fieldOf(request: z.ZodObject, field: string): z.ZodType {
  const schema = request.shape[field] as z.ZodType | undefined;
  if (schema === undefined) throw new Error(`a route describes the field "${field}", which its command does not have`);
  return schema;
}

/** The schema of a value that is there: paths and queries leave out what a body would give as null. */
function given(schema: z.ZodType): JsonSchema {
  if (schema instanceof z.ZodDefault || schema instanceof z.ZodNullable) return given(schema.unwrap() as z.ZodType);
  return jsonSchema(schema, 'input');
}

function jsonSchema(schema: z.ZodType, io: 'input' | 'output'): JsonSchema {
  return z.toJSONSchema(schema, { io, unrepresentable: 'any', target: 'openapi-3.0' });
}
