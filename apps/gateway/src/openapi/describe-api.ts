import type { INestApplication } from '@nestjs/common';
import { DocumentBuilder, SwaggerModule } from '@nestjs/swagger';

/** `/docs` for people, `/docs-json` for tools. */
export function describeApi(app: INestApplication): void {
  const document = new DocumentBuilder()
    .setTitle('Hotbed')
    .setDescription('Continual learning: data streams, experiments, adapters and their versions')
    .setVersion('1')
    .addBearerAuth({ type: 'http', scheme: 'bearer' })
    .build();
  SwaggerModule.setup('docs', app, () => SwaggerModule.createDocument(app, document));
}
