// Every id that a panel names is one of Grafana's registries: @grafana/data has them.

import { load } from './packages.mjs';

/** Finds ids that a version of Grafana does not know: `{place, says}`. */
export function* checkRegistries({ panels }, { data }) {
  const known = load(data);
  for (const { place, json } of panels) {
    const parts = [judgeFields(json, known), judgeReducers(json, known), judgeSteps(json, data)];
    for (const says of parts.flatMap((part) => [...part])) yield { place, says };
  }
}

function* judgeFields({ fieldConfig = {} }, known) {
  yield* judgeProperties(Object.entries(fieldConfig.defaults ?? {}), known);
  for (const { matcher, properties } of fieldConfig.overrides ?? []) {
    yield* judgeMatcher(matcher, known);
    yield* judgeProperties(properties.map(({ id, value }) => [id, value]), known);
  }
}

/** Judges units and colour modes, which the types leave open. */
function* judgeProperties(properties, { getValueFormats, fieldColorModeRegistry }) {
  const units = new Set(getValueFormats().flatMap((group) => group.submenu.map((one) => one.value)));
  for (const [id, value] of properties) {
    if (id === 'unit' && !units.has(value) && !/^(suffix|prefix):./.test(value)) {
      yield `Grafana has no unit ${value}`;
    }
    if (id === 'color' && !fieldColorModeRegistry.getIfExists(value.mode)) {
      yield `Grafana has no colour mode ${value.mode}`;
    }
  }
}

/** Judges whether a field matcher is there, and whether its pattern is one. */
function* judgeMatcher({ id, options }, { fieldMatchers, stringToJsRegex }) {
  if (!fieldMatchers.getIfExists(id)) yield `Grafana has no field matcher ${id}`;
  if (id !== 'byRegexp') return;
  try {
    stringToJsRegex(options);
  } catch (error) {
    yield `field matcher ${id} does not take ${options}: ${error.message}`;
  }
}

/** Judges what a panel calculates, and by which of it the legend is sorted. */
function* judgeReducers({ options = {} }, { fieldReducers }) {
  const shown = options.legend?.calcs ?? [];
  for (const id of [...shown, ...(options.reduceOptions?.calcs ?? [])]) {
    if (!fieldReducers.getIfExists(id)) yield `Grafana has no reducer ${id}`;
  }
  const names = ['Name', ...shown.map((id) => fieldReducers.getIfExists(id)?.name)];
  const sortBy = options.legend?.sortBy;
  if (sortBy && !names.includes(sortBy)) {
    yield `its legend is sorted by ${sortBy}, which is no column of it`;
  }
}

function* judgeSteps({ transformations = [] }, data) {
  for (const { id } of transformations) {
    if (!findTransformer(id, data)) yield `@grafana/data has no transformation ${id}`;
  }
}

/** Gives the name by which @grafana/data exports a transformation; undefined: it has none. */
export function findTransformer(id, data) {
  const every = Object.entries(load(data).standardTransformers);
  return every.find(([, one]) => one.id === id)?.[0];
}
