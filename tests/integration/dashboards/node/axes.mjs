// Where axes end, as uPlot computes it, which draws Grafana's graphs: a curve fills its panel.

import { load } from './packages.mjs';

const PAD = 0.1;
// Values between which a quiet machine's lie, by unit; others are as small as a learning rate is not.
const TYPICAL = {
  bytes: [32 * 2 ** 10, 64 * 2 ** 10], Bps: [200, 1000], celsius: [25, 40], hertz: [3e8, 1e9],
  joule: [1e3, 1e5], locale: [10, 20], percentunit: [0.02, 0.05], s: [5e-5, 2e-4], sci: [1e-8, 6e-8],
  watt: [8, 20],
};
const OTHERS = [0.02, 0.05];
const COUNTS = [1, 3];
const LEAST_SHARE = 1 / 3; // of the height, for the highest value

/** Finds axes that end far above typical values: `{place, says}`. */
export function* checkAxes({ panels }) {
  const { rangeNum } = load('uplot');
  for (const { place, json } of panels.filter(({ json: { type } }) => type === 'timeseries')) {
    for (const { unit, soft, isCount } of listAxes(json)) {
      const [least, most] = isCount ? COUNTS : (TYPICAL[unit] ?? OTHERS);
      const [, end] = rangeNum(least, most, configure(soft));
      if (most / end < LEAST_SHARE) {
        yield { place, says: `${most} ${unit} is drawn on an axis that ends at ${end}` };
      }
      if (!(rangeNum(0, 0, configure(soft))[1] <= Math.max(soft, 1))) {
        yield { place, says: `0 ${unit} is drawn on an axis that ends above ${soft}` };
      }
    }
  }
}

/** Gives the axes from 0 up that end where values do: not those with lines of alerts, nor shares of a whole. */
function* listAxes({ fieldConfig: { defaults, overrides = [] } }) {
  const { axisSoftMax: soft, thresholdsStyle } = defaults.custom;
  const isShare = defaults.unit === 'percentunit' && soft === 1;
  if (soft !== undefined && thresholdsStyle.mode === 'off' && !isShare) {
    yield { unit: defaults.unit, soft, isCount: defaults.unit === 'short' && defaults.decimals === 0 };
  }
  for (const { properties } of overrides) {
    const own = Object.fromEntries(properties.map(({ id, value }) => [id, value]));
    const end = own['custom.axisSoftMax'] ?? soft;
    if (own.unit && end !== undefined) yield { unit: own.unit, soft: end, isCount: false };
  }
}

/** Gives what Grafana hands to uPlot for an axis from 0 with a soft end. */
const configure = (soft) => ({
  min: { pad: PAD, hard: 0, soft: 0, mode: 3 },
  max: { pad: PAD, hard: Infinity, soft, mode: 1 },
});
