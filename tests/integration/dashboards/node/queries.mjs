// Every query is PromQL to the parser that Grafana's editor and Prometheus's page share.

import { listQueries } from './boards.mjs';
import { load } from './packages.mjs';

const VARIABLE = /\$(?<plain>\w+)|\$\{(?<name>\w+)(?:\.[^:}]+)?(?::[^}]+)?\}/g;

const TIMES = {
  __rate_interval: '1m',
  __interval: '15s',
  __interval_ms: '15000',
  __range: '3600s',
  __range_s: '3600',
  __range_ms: '3600000',
  __from: '1700000000000',
  __to: '1700003600000',
};

/** Finds what does not parse: `{place, says}`. */
export function* checkQueries(board) {
  const { parser } = load('@prometheus-io/lezer-promql');
  for (const { place, expr } of listQueries(board)) {
    for (const which of [0, 1]) {
      const filled = fill(expr, listValues(board.json), which);
      const at = filled.trim() ? findError(parser, filled) : 0;
      if (at !== null) {
        yield { place, says: filled.trim() ? `no PromQL at ${point(filled, at)}` : 'asks nothing' };
        break;
      }
    }
  }
}

/** Gives what each variable of a board becomes: one value, and several where that can be. */
function listValues({ templating }) {
  const entries = (templating?.list ?? []).map((one) => {
    const first = one.type === 'textbox' ? (one.query ?? '') : 'a';
    return [one.name, [first, one.multi || one.includeAll ? '(a|b)' : first]];
  });
  return Object.fromEntries(entries);
}

function fill(expr, values, which) {
  return expr.replace(VARIABLE, (whole, plain, name) => {
    const asked = plain ?? name;
    return TIMES[asked] ?? values[asked]?.[which] ?? whole;
  });
}

function findError(parser, text) {
  let at = null;
  parser.parse(text).iterate({
    enter(node) {
      if (node.type.isError) at ??= node.from;
    },
  });
  return at;
}

const point = (text, at) => `"${text.slice(Math.max(0, at - 30), at)}⟨here⟩${text.slice(at, at + 30)}"`;
