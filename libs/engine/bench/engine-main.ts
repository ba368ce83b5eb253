import { ENGINE_BENCH, benchEngine } from './engine';
import { engineText } from './engine-text';
import { runBench } from './options';

runBench(ENGINE_BENCH, async (options) => {
  const report = await benchEngine(options);
  console.log(options.has('json') ? JSON.stringify(report) : engineText(report));
});
