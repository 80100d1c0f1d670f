// Bundles what the pages load that others wrote into the folder named by the first
// argument. Run by .ci/setup in a copy of this folder with its packages installed.
import { build } from 'esbuild'
import { mkdir, readFile, writeFile } from 'node:fs/promises'

const out = process.argv[2]
if (!out) throw new Error('usage: node build.mjs FOLDER')
await mkdir(out, { recursive: true })

const result = await build({
  entryPoints: ['screen.js', 'plot.js'],
  bundle: true, minify: true, format: 'esm', target: 'es2022', legalComments: 'none',
  metafile: true, outdir: out, logLevel: 'warning',
})

// Whoever is handed the bundles is handed the terms they came under as well.
const packages = new Set()
for (const path of Object.keys(result.metafile.inputs)) {
  const found = path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//)
  if (found) packages.add(found[1])
}
let terms = ''
for (const name of [...packages].sort()) {
  const about = JSON.parse(await readFile(`node_modules/${name}/package.json`, 'utf8'))
  let text = ''
  for (const file of ['LICENSE', 'LICENSE.txt', 'docs/LICENSE.MPL-2.0', 'vendor/pako/LICENSE']) {
    const part = await readFile(`node_modules/${name}/${file}`, 'utf8').catch(() => '')
    if (part) text += part.trim() + '\n\n\n'
  }
  if (!text) throw new Error(`${name} brings no terms of use`)
  terms += `${name} ${about.version} (${about.license}), its source is ${about.repository?.url ?? about.homepage}\n\n${text}`
}
await writeFile(`${out}/licenses.txt`, terms)
