// Goes through the app in a real browser as a person does, and says what it saw: one JSON
// object a line on standard output. Its task comes as JSON in the first argument:
//
//   base      where the app is
//   signin    paths that sign in, each once
//   pages     name to path
//   looks     language, theme and size (phone or desktop) of each look at them
//   box       path of a box with a screen
//   strangers name to path, of pages that are looked at before signing in
//   link      path that gives somebody without an account the keyboard of a box
//   node      folder with puppeteer-core and axe-core in node_modules
//   chromium  path of the browser
//   soon      ms in which a page is there
//   least     path of the least there is to load, which says how quick this machine is now
//   pictures  folder for pictures of every page
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const task = JSON.parse(process.argv[2])
const require = createRequire(task.node + '/here.js')
const { default: puppeteer } = await import(pathToFileURL(require.resolve('puppeteer-core')))
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8')
const say = (what) => console.log(JSON.stringify(what))
const lines = createInterface({ input: process.stdin })
const answers = lines[Symbol.asyncIterator]()
const phone = { width: 390, height: 844, deviceScaleFactor: 1, isMobile: true, hasTouch: true }
const desktop = { width: 1280, height: 900 }

const browser = await puppeteer.launch({ executablePath: task.chromium, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--lang=en'], protocolTimeout: 300000 })
try {
  const page = await open(browser.defaultBrowserContext())
  await everyWay(page, async (way, lang, judged) => {
    for (const [name, path] of Object.entries(task.strangers)) await look(page, name + way, path, lang, judged)
  })
  await comeByLink()
  await signIn(page, task.signin[0])
  await everyWay(page, async (way, lang, judged) => {
    for (const [name, path] of Object.entries(task.pages)) await look(page, name + way, path, lang, judged)
    await page.click('.menu summary')
    await see(page, 'menu' + way, lang, judged)
  })
  await browser.setCookie(...[['psbx_lang', 'en'], ['psbx_theme', 'light']].map(([name, value]) => ({ name, value, domain: '127.0.0.1', path: '/' })))
  await page.setViewport(desktop)
  await seeScreen(page)
  await moveAlong(page)
  await takeNews(page)
  await makeKey(page)
  await weigh(page)
} finally {
  lines.close()
  process.stdin.destroy()
  await browser.close()
}

// everyWay goes through both languages, both themes and both sizes. axe judges every theme
// and size, each in one language: both have the same elements.
async function everyWay(page, go) {
  for (const [lang, theme, size, viewport] of task.looks.map(([l, t, s]) => [l, t, s, s === 'phone' ? phone : desktop])) {
    await page.browserContext().setCookie(...[['psbx_lang', lang], ['psbx_theme', theme]].map(([name, value]) => ({ name, value, domain: '127.0.0.1', path: '/' })))
    await page.setViewport(viewport)
    await go(`-${lang}-${theme}-${size}`, lang, (lang === 'en') === (theme === 'light'))
  }
}

// comeByLink takes the keyboard as somebody who is sent a link, types with it, and looks at
// the page as it is then.
async function comeByLink() {
  const context = await browser.createBrowserContext()
  const page = await open(context)
  await page.setViewport(desktop)
  await page.goto(task.base + task.link)
  await Promise.all([page.waitForNavigation(), page.click('main form button')])
  const path = new URL(page.url()).pathname
  await page.type('input[name=text]', 'ひらがなと漢字')
  await page.keyboard.press('Enter')
  await page.waitForFunction(() => document.querySelector('input[name=text]').value === '')
  say({ step: 'typed', said: path })
  await everyWay(page, (way, lang, judged) => look(page, 'guest' + way, path, lang, judged))
  await context.close()
}

// open makes a page that reports whatever goes wrong in it.
async function open(context) {
  const page = await context.newPage()
  page.on('console', (m) => { if (['error', 'warn'].includes(m.type()) && !/status of 404|willReadFrequently/.test(m.text())) say({ wrong: m.text(), at: page.url() }) })
  page.on('pageerror', (e) => say({ wrong: String(e), at: page.url() }))
  await page.exposeFunction('violated', (what) => say({ wrong: 'the policy forbids ' + what, at: page.url() }))
  await page.evaluateOnNewDocument(() => {
    document.addEventListener('securitypolicyviolation', (e) => window.violated(e.violatedDirective + ' ' + e.blockedURI))
    window.moved = 0
    new PerformanceObserver((list) => { for (const e of list.getEntries()) if (!e.hadRecentInput) window.moved += e.value }).observe({ type: 'layout-shift', buffered: true })
  })
  return page
}

async function signIn(page, path) {
  await page.goto(task.base + path)
  await Promise.all([page.waitForNavigation(), page.click('main form button')])
}

// look goes to a page and sees what is there.
async function look(page, name, path, lang, judged) {
  await page.goto(task.base + path, { waitUntil: 'load' })
  if (await page.$('#screen')) await page.waitForSelector('#screen[data-state=open]', { timeout: 20000 })
  await see(page, name, lang, judged)
}

// see takes a picture of a page and has axe judge it.
async function see(page, name, lang, judged) {
  await page.evaluate(() => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r))))
  if (judged) await page.evaluate(axe)
  const seen = await page.evaluate(async () => ({
    faults: !window.axe ? [] : (await window.axe.run(document, { resultTypes: ['violations'] })).violations
      .map((v) => ({ id: v.id, impact: v.impact, where: v.nodes.slice(0, 3).map((n) => n.target.join(' ') + ': ' + n.failureSummary) })),
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth, moved: window.moved, lang: document.documentElement.lang,
  }))
  await page.screenshot({ path: `${task.pictures}/${name}.png`, fullPage: true })
  say({ page: name, ...seen, expected: lang })
}

// seeScreen reads the pixels that the page shows of the box's display.
async function seeScreen(page) {
  await page.goto(task.base + task.box)
  await page.waitForSelector('#screen[data-state=open]', { timeout: 10000 })
  await page.waitForFunction(() => document.querySelector('#screen canvas').getContext('2d').getImageData(5, 5, 1, 1).data[2] > 0, { timeout: 10000 })
  const pixels = await page.evaluate(() => {
    const c = document.querySelector('#screen canvas')
    return [[0.25, 0.25], [0.75, 0.25], [0.25, 0.75], [0.75, 0.75]].map(([x, y]) => [...c.getContext('2d').getImageData(x * c.width, y * c.height, 1, 1).data].slice(0, 3))
  })
  say({ pixels })
}

// moveAlong goes through the history by keyboard, and finds the way around without a mouse.
async function moveAlong(page) {
  await page.goto(task.base + task.box)
  await page.keyboard.press('Tab')
  say({ step: 'skip', said: await page.evaluate(() => document.activeElement.className) })
  const now = await page.$eval('#moment', (e) => e.textContent)
  await page.focus('#ms')
  await page.keyboard.press('Home')
  await page.waitForFunction((was) => document.getElementById('moment').textContent !== was, {}, now)
  const first = await page.$eval('#moment', (e) => e.textContent)
  await page.click('[data-step="1"]')
  await page.waitForFunction((was) => document.getElementById('moment').textContent !== was, {}, first)
  await page.click('[data-now]')
  await page.waitForFunction((was) => document.getElementById('moment').textContent === was, {}, now)
  say({ step: 'history', said: first })
}

// takeNews has something happen while a page is open: it shows it, and leaves alone what the
// person is at.
async function takeNews(page) {
  await page.goto(task.base + '/boxes')
  await page.focus('.menu summary')
  say({ step: 'listening' })
  const { value: name } = await answers.next()
  await page.waitForFunction((n) => document.body.textContent.includes(n), { timeout: 10000 }, name)
  say({ step: 'news', said: await page.evaluate(() => document.activeElement.parentElement.className) })
}

// makeKey makes an API key: the one page on which it is shown.
async function makeKey(page) {
  await page.goto(task.base + '/settings')
  await page.type('input[name=name]', 'laptop')
  await Promise.all([page.waitForNavigation(), page.keyboard.press('Enter')])
  await see(page, 'key-en-light-desktop', 'en', true)
}

// weigh loads pages as a browser does that has never seen the app: bytes on the wire,
// without the program that shows screens, and the time until a page is all there. It comes
// from a picture of the app (whose bytes may count too), since a browser that comes from
// elsewhere begins a process first. A busy machine is slow now and then, so it is given a few
// tries.
async function weigh(page) {
  const client = await page.createCDPSession()
  await client.send('Network.enable')
  await client.send('Network.setCacheDisabled', { cacheDisabled: true })
  const addresses = new Map()
  let bytes = 0
  client.on('Network.requestWillBeSent', (e) => addresses.set(e.requestId, e.request.url))
  client.on('Network.loadingFinished', (e) => { if (!/\/assets\/screen-|\/live/.test(addresses.get(e.requestId))) bytes += e.encodedDataLength })
  for (const [name, path] of Object.entries({ nothing: task.least, ...task.pages })) {
    const times = []
    for (let i = 0; i < 10 && !(name !== 'nothing' && Math.min(...times) <= task.soon); i++) {
      await page.goto(task.base + task.least)
      bytes = 0
      await page.goto(task.base + path, { waitUntil: 'load' })
      times.push(await page.evaluate(() => performance.getEntriesByType('navigation')[0].loadEventEnd))
    }
    say({ load: name, bytes, ms: Math.min(...times) })
  }
}
