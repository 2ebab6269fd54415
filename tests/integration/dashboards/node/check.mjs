// Judges boards by Grafana's own packages: `node check.mjs [DIRECTORY]`; without it, ours.
// Exit status: 0 in order, 1 faults, 2 the packages are not there.

import path from 'node:path';

import { checkAxes } from './axes.mjs';
import { listQueries, readBoards } from './boards.mjs';
import { checkDisplay, countDisplayed } from './display.mjs';
import { ROOT, VERSIONS, areInstalled } from './packages.mjs';
import { checkQueries } from './queries.mjs';
import { checkRegistries } from './registries.mjs';
import { checkTypes } from './types.mjs';

function main(directory) {
  if (!areInstalled()) {
    console.error("Grafana's packages are not installed: run make test-grafana");
    return 2;
  }
  const boards = readBoards(directory);
  const say = console.error;
  console.error = console.warn = () => {}; // what is wrong is told below
  const faults = new Map(); // by what is said, the versions of Grafana of which it is true
  for (const version of VERSIONS) {
    for (const { place, says } of judge(boards, version)) {
      const line = `${place}: ${says}`;
      faults.set(line, [...(faults.get(line) ?? []), version.version]);
    }
  }
  const others = (board) => [...checkQueries(board), ...checkAxes(board)];
  for (const { place, says } of boards.flatMap(others)) {
    faults.set(`${place}: ${says}`, []);
  }
  for (const [line, of] of faults) {
    say(of.length === 1 ? `${line} [Grafana ${of[0]} alone]` : line);
  }
  const panels = boards.flatMap((board) => board.panels);
  const queries = boards.flatMap(listQueries).length;
  const { columns, mappings } = countDisplayed(panels);
  const what = [`${boards.length} boards`, `${panels.length} panels`, `${queries} queries`];
  what.push(`${columns} columns and series`, `${mappings} mappings`);
  const versions = VERSIONS.map(({ version }) => version).join(' and ');
  console.log(`${what.join(', ')}: ${faults.size} faults by Grafana ${versions}`);
  return faults.size || !boards.length ? 1 : 0;
}

/** Finds the faults of all boards that the packages of one version find. */
function* judge(boards, version) {
  yield* checkTypes(boards, version);
  for (const board of boards) {
    yield* checkRegistries(board, version);
    yield* checkDisplay(board, version);
  }
}

process.exitCode = main(process.argv[2] ?? path.join(ROOT, 'grafana/dashboards'));
