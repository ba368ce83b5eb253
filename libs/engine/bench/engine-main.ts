import { benchEngine, engineOptions } from './engine';
import { engineText } from './engine-text';
import { runBench } from './options';

runBench(async (args) => {
  const options = engineOptions(args);
  const report = await benchEngine(options);
  console.log(options.has('json') ? JSON.stringify(report) : engineText(report));
});
