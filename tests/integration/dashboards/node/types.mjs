// Every board is of Grafana's types: it is written out as TypeScript, each panel with the options
// and fields of its own kind, and the compiler judges it. The compiler names the first key too many
// of each object; the others come when that one is gone.

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { PACKAGES, load } from './packages.mjs';
import { findTransformer } from './registries.mjs';

const SCHEMA = '@grafana/schema';
const KINDS = 'dist/esm/raw/composable';

// What a panel reads and its schema leaves out.
const UNPUBLISHED = {
  'state-timeline': "Pick<s.GraphFieldConfig, 'spanNulls'>", // its module.tsx adds the editor by hand
};

// Prometheus keeps these at an annotation itself, as it did before annotations had a target.
const ANNOTATION =
  '{ expr?: string; step?: string; titleFormat?: string; textFormat?: string; useValueForTime?: boolean }';

const PRELUDE = `
import type * as s from '${SCHEMA}';
import type * as d from '@grafana/data';

// JSON has the values of enumerations, not their names.
type Loose<T> = unknown extends T ? T : T extends string ? \`\${T}\`
  : T extends object ? { [K in keyof T]: Loose<T[K]> } : T;
// Grafana fills in what is not written of options, fields and a panel's links.
type Written<T> = unknown extends T ? T : T extends string ? \`\${T}\`
  : T extends readonly (infer U)[] ? Written<U>[]
  : T extends object ? { [K in keyof T]?: Written<T[K]> } : T;

type Fields = Omit<Loose<s.FieldConfig>, 'custom'>;
type Standard = { [K in \`\${d.FieldConfigProperty}\`]:
  { id: K; value: K extends keyof Fields ? Fields[K] : unknown } };
type Custom<C> = { [K in keyof C & string as \`custom.\${K}\`]-?:
  { id: \`custom.\${K}\`; value: Written<C[K]> } };
type Property<C> = Standard[keyof Standard] | Custom<C>[keyof Custom<C>];
type Judged = 'type' | 'links' | 'options' | 'fieldConfig';
type Panel<Kind, Options, C> = Omit<Loose<s.Panel>, Judged> & {
  type: Kind;
  links?: Written<s.DashboardLink>[];
  options: Written<Options>;
  fieldConfig: {
    defaults: Fields & { custom?: Written<C> };
    overrides: { matcher: Loose<s.MatcherConfig>; properties: Property<C>[] }[];
  };
};
type Variable = Loose<s.VariableModel> & { definition?: string };
type Annotation = Loose<s.AnnotationQuery> & ${ANNOTATION};
type Board = Omit<Loose<s.Dashboard>, 'panels' | 'templating' | 'annotations'> & {
  templating: { list: (Omit<Variable, 'current'> & { current?: Written<s.VariableOption> })[] };
  annotations: { list: Annotation[] };
};
type Row = Omit<Loose<s.RowPanel>, 'panels'>;
type StepOptions<T> = T extends d.DataTransformerInfo<infer O> ? Written<O> : never;
`;

/** Finds what is not of the types of a version of Grafana: `{place, says}`. */
export function* checkTypes(boards, version) {
  const parts = boards.flatMap((board) => [...listParts(board, version)]);
  yield* parts.filter((part) => part.says);
  const typed = parts.filter((part) => part.type);
  const lines = typed.map(({ type, json }, at) => `const part${at}: ${type} = ${JSON.stringify(json)};`);
  const imports = [...new Set(typed.map((part) => part.from ?? ''))];
  const text = [PRELUDE, ...imports, ...lines, 'export {};'].join('\n');
  yield* compile(text, typed, version);
}

/** Takes a board apart into `{place, type, json}`; `{place, says}` for what has no type. */
function* listParts({ place, json, rows, panels }, version) {
  const { panels: _, ...rest } = json;
  yield { place, type: 'Board', json: rest };
  for (const row of rows) {
    const { panels: __, ...bare } = row.json;
    yield { place: row.place, type: 'Row', json: bare };
  }
  for (const panel of panels) {
    yield* typePanel(panel, version);
    for (const { id, options } of panel.json.transformations ?? []) {
      const name = findTransformer(id, version.data);
      const type = `StepOptions<typeof d.standardTransformers.${name}>`;
      if (name) yield { place: `${panel.place}, transformation ${id}`, type, json: options };
    }
  }
}

/** Gives a panel the type of its kind. */
function* typePanel({ place, json }, { schema }) {
  const kind = String(json.type).replaceAll('-', '');
  const folder = path.join(PACKAGES, 'node_modules', schema, KINDS, kind, 'panelcfg/x');
  if (!/^\w+$/.test(kind) || !existsSync(folder)) {
    yield { place, says: `Grafana has no types for panels of type ${json.type}` };
    return;
  }
  const file = readdirSync(folder).find((name) => name.endsWith('_types.gen.d.ts'));
  const module = `${SCHEMA}/${KINDS}/${kind}/panelcfg/x/${file.replace('.d.ts', '')}`;
  const own = /export interface FieldConfig\b/.test(readFileSync(path.join(folder, file), 'utf8'));
  const custom = [own ? `${kind}.FieldConfig` : '{}', UNPUBLISHED[json.type] ?? '{}'].join(' & ');
  yield {
    place,
    type: `Panel<'${json.type}', ${kind}.Options, ${custom}>`,
    from: `import type * as ${kind} from '${module}';`,
    json,
  };
}

/** Has the compiler judge a text, and says of each error which part it is in. */
function* compile(text, parts, version) {
  const ts = load('typescript');
  const name = path.join(PACKAGES, 'boards.ts');
  const options = {
    strict: true,
    noEmit: true,
    skipLibCheck: true,
    types: [],
    target: ts.ScriptTarget.ES2022,
    module: ts.ModuleKind.ESNext,
    moduleResolution: ts.ModuleResolutionKind.Bundler,
    // The packages of a version name each other without it.
    paths: { ...listPaths(SCHEMA, version.schema), ...listPaths('@grafana/data', version.data) },
  };
  const source = ts.createSourceFile(name, text, options.target, true);
  const host = ts.createCompilerHost(options);
  const { getSourceFile, fileExists } = host;
  host.getSourceFile = (asked, ...rest) => (asked === name ? source : getSourceFile(asked, ...rest));
  host.fileExists = (asked) => asked === name || fileExists(asked);
  const program = ts.createProgram([name], options, host);
  for (const { start, messageText } of ts.getPreEmitDiagnostics(program, source)) {
    const { part, keys } = locate(ts, source, start);
    const says = ts.flattenDiagnosticMessageText(messageText, '\n').split('\n').at(-1).trim();
    if (part === null) throw new Error(`types.mjs itself does not compile: ${says}`);
    yield { place: parts[part].place, says: [keys.join('.'), says].filter(Boolean).join(': ') };
  }
}

/** Gives where the compiler finds a package and the files in it. */
function listPaths(name, installed) {
  const folder = path.join(PACKAGES, 'node_modules', installed);
  return { [name]: [folder], [`${name}/*`]: [`${folder}/*`] };
}

/** Gives the part at a position, and the keys that lead there within it. */
function locate(ts, source, start) {
  const keys = [];
  let node = ts.getTokenAtPosition(source, start);
  for (; node.parent && !ts.isVariableDeclaration(node); node = node.parent) {
    if (ts.isPropertyAssignment(node)) keys.unshift(node.name.text);
    if (ts.isArrayLiteralExpression(node.parent)) keys.unshift(node.parent.elements.indexOf(node));
  }
  return { part: node.parent ? Number(node.name.text.replace('part', '')) : null, keys };
}
