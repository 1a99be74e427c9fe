// Installs the real programs that the interop checks drive, by name and exact version, under <target>/interop.
// Safe and quick to run again: what is already there in the right version is left alone.
//
//   node setup.mjs [all]       prints where everything is, as JSON; with `all`, installs the agents, hosts and servers of the reverse half too
//   DIGLOT_PEERS=DIR           another place for the programs (several checkouts can share one)
//
// Needs node, npm and python3 (with venv) on PATH.

import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');

export const PEERS = path.resolve(process.env.DIGLOT_PEERS ?? path.join(process.env.CARGO_TARGET_DIR ?? path.join(root, 'target'), 'interop'));
export const NPM = {
  '@anthropic-ai/claude-agent-sdk': '0.3.332', // carries the claude binary in a package for each platform
  '@agentclientprotocol/sdk': '2.4.0',
  acpx: '0.19.1',
  node: '22.23.3', // acpx needs 22.13 or later
};
export const PYPI = { 'agent-client-protocol': '0.12.1' };

const isFile = (file) => fs.statSync(file, { throwIfNoEntry: false })?.isFile() === true;

function run(command, args, cwd) {
  try {
    execFileSync(command, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'], encoding: 'utf8', maxBuffer: 1 << 26 });
  } catch (error) {
    throw new Error(`\`${command} ${args.join(' ')}\` failed in ${cwd}: ${(error.stderr || error.message).trim().slice(-2000)}`);
  }
}

/** Installs exact npm versions into `folder`, unless they are there. */
export function npmInstall(folder, packages) {
  const there = (name, version) => {
    const manifest = path.join(folder, 'node_modules', name, 'package.json');
    return isFile(manifest) && JSON.parse(fs.readFileSync(manifest, 'utf8')).version === version;
  };
  if (Object.entries(packages).every(([name, version]) => there(name, version))) return;
  fs.mkdirSync(folder, { recursive: true });
  fs.writeFileSync(path.join(folder, 'package.json'), `${JSON.stringify({ name: 'peers', private: true, dependencies: packages }, null, 2)}\n`);
  run('npm', ['install', '--no-audit', '--no-fund', '--no-save', '--loglevel=error'], folder);
}

/** Installs exact versions from PyPI into the virtual environment `folder`, unless they are there; `also` holds further requirements. */
export function pipInstall(folder, packages, also = []) {
  const python = path.join(folder, 'bin/python');
  const stamp = path.join(folder, 'installed.json');
  const wanted = JSON.stringify(also.length === 0 ? packages : [packages, ...also]);
  if (isFile(stamp) && fs.readFileSync(stamp, 'utf8') === wanted) return;
  fs.mkdirSync(path.dirname(folder), { recursive: true });
  if (!isFile(python)) run('python3', ['-m', 'venv', folder], path.dirname(folder));
  run(python, ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', ...Object.entries(packages).map(([name, version]) => `${name}==${version}`), ...also], folder);
  fs.writeFileSync(stamp, wanted);
}

/** Builds a program of one file with its dependencies {name: version or table} in `folder`, unless that one is built already. */
export function cargoInstall(folder, { dependencies, main }) {
  const spec = (value) => (typeof value === 'string' ? JSON.stringify(value) : `{ version = ${JSON.stringify(value.version)}, features = ${JSON.stringify(value.features)} }`);
  const files = {
    'Cargo.toml': [
      '[package]', 'name = "host"', 'version = "0.0.0"', 'edition = "2024"', 'publish = false', '', '[workspace]', '', '[dependencies]',
      ...Object.entries(dependencies).map(([name, value]) => `${name} = ${spec(value)}`), '',
    ].join('\n'),
    'src/main.rs': fs.readFileSync(main, 'utf8'),
  };
  const there = ([name, text]) => isFile(path.join(folder, name)) && fs.readFileSync(path.join(folder, name), 'utf8') === text;
  const built = path.join(folder, 'target/debug/host');
  if (Object.entries(files).every(there) && isFile(built)) return;
  fs.rmSync(built, { force: true }); // a build that fails must not leave an old program with the new files
  fs.mkdirSync(path.join(folder, 'src'), { recursive: true });
  for (const [name, text] of Object.entries(files)) fs.writeFileSync(path.join(folder, name), text);
  run('cargo', ['build', '--quiet', '--target-dir', path.join(folder, 'target')], folder);
}

/** The claude binary inside an installed agent SDK, whatever the platform package is called. */
export function findClaude(folder) {
  const scope = path.join(folder, 'node_modules/@anthropic-ai');
  const name = `claude-agent-sdk-${process.platform}-${process.arch}`;
  for (const candidate of [name, `${name}-musl`]) {
    for (const binary of ['claude', 'claude.exe']) {
      if (isFile(path.join(scope, candidate, binary))) return path.join(scope, candidate, binary);
    }
  }
  throw new Error(`no claude binary under ${scope}: remove ${folder} and run setup again on a supported platform`);
}

/** Installs what is missing and says where everything is. */
export function setup() {
  fs.mkdirSync(PEERS, { recursive: true });
  npmInstall(PEERS, NPM);
  pipInstall(path.join(PEERS, 'venv'), PYPI);
  const modules = path.join(PEERS, 'node_modules');
  return {
    root,
    peers: PEERS,
    claude: process.env.CLAUDE_CODE_EXECUTABLE ?? findClaude(PEERS),
    node: path.join(modules, 'node/bin/node'),
    acpx: path.join(modules, 'acpx/dist/cli.js'),
    tsSdk: path.join(modules, '@agentclientprotocol/sdk/dist/v1/stable/acp.js'),
    python: path.join(PEERS, 'venv/bin/python'),
  };
}

/** Installs the packages of one agent, host or server {name, npm?, pypi?, also?, cargo?}; returns its folder. One without packages is in PEERS. */
export function install(kind, { name, npm, pypi, also, cargo }) {
  if (!npm && !pypi && !cargo) return PEERS;
  const folder = path.join(PEERS, kind, name);
  if (npm) npmInstall(folder, npm);
  if (pypi) pipInstall(folder, pypi, also);
  if (cargo) cargoInstall(folder, cargo);
  return folder;
}

async function main() {
  const place = setup();
  if (process.argv[2] === 'all') {
    const { AGENTS } = await import('./agents/index.mjs');
    const { HOSTS, PROGRAMS } = await import('./hosts/index.mjs');
    const { SERVERS } = await import('./servers/index.mjs');
    place.agents = Object.fromEntries(AGENTS.map((agent) => [agent.name, install('agents', agent)]));
    place.hosts = Object.fromEntries([...HOSTS, ...Object.values(PROGRAMS)].map((host) => [host.name, install('hosts', host)]));
    place.servers = Object.fromEntries(SERVERS.map((server) => [server.name, install('servers', server)]));
  }
  process.stdout.write(`${JSON.stringify(place, null, 2)}\n`);
}

// Not awaited: the agents' recipes import this module, which would wait for itself.
if (process.argv[1] === fileURLToPath(import.meta.url)) main().catch((error) => { process.stderr.write(`${error.message}\n`); process.exitCode = 1; });
