// Judges boards by Grafana's own packages: `node check.mjs [DIRECTORY]`; without it, ours.
// Exit status: 0 in order, 1 faults, 2 the packages are not there.

import path from 'node:path';

import { listQueries, readBoards } from './boards.mjs';
import { ROOT, areInstalled, readVersion } from './packages.mjs';
import { checkQueries } from './queries.mjs';
import { checkRegistries } from './registries.mjs';
import { checkTypes } from './types.mjs';

function main(directory) {
  if (!areInstalled()) {
    console.error("Grafana's packages are not installed: run make test-grafana");
    return 2;
  }
  const boards = readBoards(directory);
  const faults = [
    ...checkTypes(boards),
    ...boards.flatMap((board) => [...checkRegistries(board), ...checkQueries(board)]),
  ];
  for (const { place, says } of faults) console.error(`${place}: ${says}`);
  const panels = boards.flatMap((board) => board.panels).length;
  const queries = boards.flatMap(listQueries).length;
  const what = `${boards.length} boards, ${panels} panels, ${queries} queries`;
  console.log(`${what}: ${faults.length} faults by Grafana ${readVersion('@grafana/schema')}`);
  return faults.length || !boards.length ? 1 : 0;
}

process.exitCode = main(process.argv[2] ?? path.join(ROOT, 'grafana/dashboards'));
