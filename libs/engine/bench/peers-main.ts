import { runBench } from './options';
import { PEERS_BENCH, benchPeers } from './peers';
import { peersText } from './peers-text';

runBench(PEERS_BENCH, async (options) => {
  const report = await benchPeers(options);
  console.log(options.has('json') ? JSON.stringify(report) : peersText(report));
});
