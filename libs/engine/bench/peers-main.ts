import { runBench } from './options';
import { benchPeers, peerOptions } from './peers';
import { peersText } from './peers-text';

runBench(async (args) => {
  const options = peerOptions(args);
  const report = await benchPeers(options);
  console.log(options.has('json') ? JSON.stringify(report) : peersText(report));
});
