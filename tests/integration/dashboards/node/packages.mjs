// Where `make test-grafana` installs Grafana's packages, and how they are had from there.

import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../../../../', import.meta.url));
export const PACKAGES = path.join(ROOT, '.cache/grafana');

const fromPackages = createRequire(path.join(PACKAGES, 'package.json'));

// `navigator` is a browser's: @grafana/data writes dates in its language.
Object.defineProperty(globalThis, 'navigator', {
  configurable: true,
  value: { languages: ['en'], language: 'en', userAgent: '' },
});

/** The packages of Grafana in two versions: the least that the boards are for, and the newest. */
export const VERSIONS = [
  { data: '@grafana/data-least', schema: '@grafana/schema-least' },
  { data: '@grafana/data', schema: '@grafana/schema' },
].map((names) => ({ ...names, get version() { return readVersion(names.schema); } }));

/** Tells whether the packages are there. */
export const areInstalled = () => existsSync(path.join(PACKAGES, '.installed'));

/** Gives a package. */
export function load(name) {
  if (name === '@grafana/data-least') {
    // It looks for what the server leaves in `window`, in which others expect a document.
    fromPackages('@grafana/data');
    fromPackages('uplot');
    globalThis.window ??= {};
  }
  return fromPackages(name);
}

/** Gives the version of a package as it is installed. */
export function readVersion(name) {
  const text = readFileSync(path.join(PACKAGES, 'node_modules', name, 'package.json'), 'utf8');
  return JSON.parse(text).version;
}
