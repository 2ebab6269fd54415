// Boards as data: their panels and queries, each with the place by which people find it.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

/** Reads every board of a directory. */
export function readBoards(directory) {
  const names = readdirSync(directory).filter((name) => name.endsWith('.json')).sort();
  return names.map((name) => {
    const json = JSON.parse(readFileSync(path.join(directory, name), 'utf8'));
    return { json, place: json.title ?? name, ...listParts(json, json.title ?? name) };
  });
}

/** Gives the rows and the panels, those of closed rows too: `{place, json}` each. */
function listParts(board, title) {
  const rows = [];
  const panels = [];
  let heading = [title];
  for (const entry of board.panels ?? []) {
    if (entry.type === 'row') {
      heading = [title, entry.title];
      rows.push({ place: heading.join(' > '), json: entry });
    }
    for (const json of entry.type === 'row' ? (entry.panels ?? []) : [entry]) {
      panels.push({ place: [...heading, json.title ?? `panel ${json.id}`].join(' > '), json });
    }
  }
  return { rows, panels };
}

/** Gives everything that a board asks of Prometheus: `{place, expr}`, variables not filled in. */
export function listQueries({ json, place, panels }) {
  const targets = panels.flatMap((panel) =>
    (panel.json.targets ?? []).map((target) => ({
      place: `${panel.place}, query ${target.refId}`,
      expr: target.expr ?? '',
    })),
  );
  const annotations = (json.annotations?.list ?? [])
    .filter((one) => !one.builtIn)
    .map((one) => ({ place: `${place} > annotation > ${one.name}`, expr: one.expr ?? '' }));
  const variables = (json.templating?.list ?? [])
    .filter((one) => one.type === 'query')
    .map((one) => ({ place: `${place} > variable > ${one.name}`, expr: readAsked(one) }));
  return [...variables, ...annotations, ...targets];
}

const ASKED = [/^label_values\((?:(?<expr>.*),\s*)?\w+\)$/s, /^query_result\((?<expr>.*)\)$/s];

/** Gives the PromQL within a variable's query; `up` where it asks for all values of a label. */
function readAsked({ query }) {
  const text = (query?.query ?? query ?? '').trim();
  const found = ASKED.map((pattern) => pattern.exec(text)).find(Boolean);
  return found ? (found.groups.expr ?? 'up') : '';
}
