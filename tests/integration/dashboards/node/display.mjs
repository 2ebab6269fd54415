// What people see in every cell, figure, band and legend: each column and series of a panel, as
// Grafana's own display processor writes it, with its overrides and mappings applied by Grafana.

import { load } from './packages.mjs';

// Names and ids that look like numbers, as Slurm gives them to jobs.
const TEXTS = ['0', '0013', '1e3', '40961'];
const NUMBERS = [0, 1, 40961, 1 / 3, 0.0003 / 7];
const MOST_LETTERS = 14;
const LABELS = { kind: 'gpu' }; // of series; others are 0
// It shows one value for the whole panel, and why there is none in its place.
const SAYS_WHY = ['stat'];
const COLOURED = ['color-text', 'color-background', 'gauge'];
const JUDGEMENTS = ['green', 'orange', 'red'];

/** Finds what is displayed wrongly: `{place, says}`. */
export function* checkDisplay({ panels, json, place }, { data }) {
  const grafana = { ...load(data), theme: load(data).createTheme() };
  for (const panel of panels) {
    for (const says of tryPanel(panel.json, grafana)) yield { place: panel.place, says };
  }
  for (const variable of json.templating?.list ?? []) {
    for (const says of judgeVariable(variable, grafana)) {
      yield { place: `${place} > variable > ${variable.name}`, says };
    }
  }
}

/** Counts the columns and series, and the texts of their mappings. */
export function countDisplayed(panels) {
  const every = panels.map(({ json }) => json);
  const overridden = every.flatMap(({ fieldConfig }) => fieldConfig.overrides ?? []);
  const properties = overridden.flatMap((one) => one.properties);
  const mappings = [
    ...every.flatMap(({ fieldConfig }) => listMapped(fieldConfig.defaults ?? {})),
    ...properties.flatMap(({ id, value }) => (id === 'mappings' ? listMapped({ mappings: value }) : [])),
  ];
  const columns = every.flatMap((json) => (json.type === 'table' ? listTitles(json) : json.targets));
  return { columns: columns.length, mappings: mappings.length };
}

const listTitles = ({ transformations }) =>
  (transformations ?? []).flatMap(({ options }) => Object.values(options.renameByName ?? {}));

/** Judges a panel; where Grafana's code fails at it, says so. */
function tryPanel(json, grafana) {
  try {
    return [...judgePanel(json, grafana)];
  } catch (error) {
    return [`cannot be displayed: ${error.message}`];
  }
}

/** Judges each column or series of a panel. */
function* judgePanel(json, grafana) {
  const frames = json.type === 'table' ? makeTable(json, grafana) : makeSeries(json, grafana);
  const drawn = grafana.applyFieldOverrides({
    data: frames,
    fieldConfig: json.fieldConfig,
    fieldConfigRegistry: listProperties(json, grafana),
    replaceVariables: (text) => text,
    theme: grafana.theme,
  });
  const titles = [];
  for (const [field, name] of drawn.flatMap((frame) => listFields(frame, drawn, grafana))) {
    titles.push(name);
    const display = grafana.getDisplayProcessor({ field, theme: grafana.theme });
    const judged = [
      judgeNothing(json, field, display, grafana),
      judgeMappings(field, display, grafana),
      field.type === 'string' ? judgeTexts(field, display) : judgeNumbers(field, display),
    ];
    for (const says of judged.flatMap((one) => [...one])) yield `${name}: ${says}`;
  }
  for (const title of json.type === 'table' ? listTitles(json) : []) {
    if (!titles.includes(title)) yield `no column ${title} is left by the transformations`;
  }
  if (json.type === 'stat') yield* judgeEmpty(json, grafana);
}

const listFields = (frame, frames, { getFieldDisplayName }) =>
  frame.fields
    .filter(({ type }) => type !== 'time')
    .map((field) => [field, getFieldDisplayName(field, frame, frames)]);

/** Gives the answers of a table's queries, put together by its own transformations. */
function makeTable(json, { toDataFrame, standardTransformers }) {
  const renamed = (json.transformations ?? []).flatMap(({ options }) =>
    Object.keys({ ...options.renameByName, ...options.excludeByName }),
  );
  const labels = renamed.filter((name) => name !== 'Time' && !isValue(name));
  const frames = json.targets.map(({ refId }, at) =>
    toDataFrame({
      refId,
      fields: [
        { name: 'Time', type: 'time', values: TEXTS.map(() => 1) },
        ...labels.map((name) => ({ name, type: 'string', values: TEXTS })),
        {
          name: json.targets.length > 1 ? `Value #${refId}` : 'Value',
          type: 'number',
          values: TEXTS.map((_, row) => row + at),
        },
      ],
    }),
  );
  const rxjs = load('rxjs');
  let made = frames;
  for (const { id, options } of json.transformations ?? []) {
    const known = Object.values(standardTransformers).find((one) => one.id === id);
    const { defaultOptions, operator } = known ?? {};
    const step = operator?.({ ...defaultOptions, ...options }, { interpolate: (text) => text });
    if (step) rxjs.of(made).pipe(step).subscribe((result) => (made = result));
  }
  return made;
}

const isValue = (name) => name === 'Value' || name.startsWith('Value #');

/** Gives a series for each query of a graph, named by its legend. */
function makeSeries(json, { toDataFrame }) {
  return json.targets.map(({ refId, legendFormat }) => {
    const named = legendFormat === '__auto' ? 'value' : (legendFormat ?? '');
    const name = named.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, label) => LABELS[label] ?? '0');
    const value = { name: 'Value', type: 'number', values: [1, 2], config: { displayNameFromDS: name } };
    return toDataFrame({ refId, fields: [{ name: 'Time', type: 'time', values: [1, 2] }, value] });
  });
}

/** Gives the properties that fields can have, with Grafana's own processors. */
function listProperties(json, grafana) {
  const { FieldConfigOptionsRegistry, FieldConfigProperty } = grafana;
  const processors = {
    decimals: grafana.numberOverrideProcessor,
    displayName: grafana.displayNameOverrideProcessor,
    links: grafana.dataLinksOverrideProcessor,
    mappings: grafana.valueMappingsOverrideProcessor,
    max: grafana.numberOverrideProcessor,
    min: grafana.numberOverrideProcessor,
    noValue: grafana.stringOverrideProcessor,
    thresholds: grafana.thresholdsOverrideProcessor,
    unit: grafana.stringOverrideProcessor,
  };
  const standard = Object.values(FieldConfigProperty).map((id) => ({ id, path: id, isCustom: false }));
  const { defaults, overrides } = json.fieldConfig;
  const own = [...Object.keys(defaults.custom ?? {}), ...overrides.flatMap(({ properties }) => properties)
    .filter(({ id }) => id.startsWith('custom.')).map(({ id }) => id.replace('custom.', ''))];
  const custom = [...new Set(own)].map((path) => ({ id: `custom.${path}`, path, isCustom: true }));
  return new FieldConfigOptionsRegistry(() =>
    [...standard, ...custom].map((one) => ({
      ...one,
      name: one.id,
      process: processors[one.id] ?? grafana.identityOverrideProcessor,
      shouldApply: () => true,
    })),
  );
}

const write = ({ prefix = '', text, suffix = '' }) => `${prefix}${text}${suffix}`;

/** Judges what stands where a value is missing: nothing, and in no colour that judges. */
function* judgeNothing(json, { config, type }, display, { theme }) {
  const empties = type === 'string' ? [null, ''] : [null];
  for (const empty of SAYS_WHY.includes(json.type) ? [] : empties) {
    const said = write(display(empty));
    if (said) yield `${JSON.stringify(empty)} is written as "${said}"`;
  }
  const look = config.custom?.cellOptions?.type;
  if (json.type === 'stat' || COLOURED.includes(look)) {
    const judged = JUDGEMENTS.map((name) => theme.visualization.getColorByName(name));
    const { color } = display(null);
    if (judged.includes(color)) yield `null is ${JUDGEMENTS[judged.indexOf(color)]}`;
  }
}

/** Judges labels: a name stays as it is. */
function* judgeTexts({ config }, display) {
  const mapped = listMapped(config).map(([value]) => value);
  for (const text of TEXTS.filter((one) => !mapped.includes(one))) {
    const said = write(display(text));
    if (said !== text) yield `"${text}" is written as "${said}"`;
  }
}

/** Judges numbers: each is written, and as short as can be read. */
function* judgeNumbers({ config }, display) {
  const mapped = listMapped(config).map(([value]) => Number(value));
  for (const number of NUMBERS.filter((one) => !mapped.includes(one))) {
    const { text } = display(number);
    if (!text || /NaN|Infinity|Invalid/.test(text)) yield `${number} is written as "${text}"`;
    if (text.length > MOST_LETTERS) yield `${number} takes ${text.length} letters: ${text}`;
  }
}

const listMapped = ({ mappings }) =>
  (mappings ?? []).filter(({ type }) => type === 'value').flatMap(({ options }) => Object.entries(options));

/** Judges mappings: each state has its own text and the colour that was chosen for it. */
function* judgeMappings({ config, type }, display, { theme }) {
  for (const [value, { text, color }] of listMapped(config)) {
    const shown = display(type === 'string' ? value : Number(value));
    const wanted = theme.visualization.getColorByName(color);
    if (write(shown) !== (text ?? value)) yield `${value} is written as "${write(shown)}", not "${text}"`;
    if (shown.color !== wanted) yield `${value} is drawn ${shown.color}, not ${color}`;
  }
}

/** Judges what a figure says where there is no answer at all. */
function* judgeEmpty(json, { getFieldDisplayValues, theme }) {
  const [shown] = getFieldDisplayValues({
    data: [],
    fieldConfig: json.fieldConfig,
    reduceOptions: json.options.reduceOptions,
    replaceVariables: (text) => text,
    theme,
  });
  const { noValue } = json.fieldConfig.defaults;
  const said = write(shown.display);
  if (said !== noValue) yield `without data it says "${said}", not "${noValue}"`;
}

/** Judges a variable: its query has a name, and its pattern is one. */
function* judgeVariable({ type, query, regex }, { stringToJsRegex }) {
  if (type === 'query' && !query?.refId) yield 'its query has no refId';
  try {
    if (regex) stringToJsRegex(regex);
  } catch (error) {
    yield `its pattern ${regex} is none: ${error.message}`;
  }
}
