// A person who signs in to the app, sees that an agent asks for help, takes the keyboard of
// its box, signs in to a shop there, and hands the box back. One JSON object a line says what
// was seen; a line on standard input lets the person go on. The task comes as JSON:
//
//   signin    address that signs in, once
//   app       where the app is
//   box       id of the box
//   node      folder with puppeteer-core in node_modules
//   chromium  path of the browser
//   pictures  folder for pictures
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

const task = JSON.parse(process.argv[2])
const require = createRequire(task.node + '/here.js')
const { default: puppeteer } = await import(pathToFileURL(require.resolve('puppeteer-core')))
const lines = createInterface({ input: process.stdin })
const answers = lines[Symbol.asyncIterator]()
const browser = await puppeteer.launch({ executablePath: task.chromium, args: ['--no-sandbox', '--disable-gpu'] })
let step = 0

async function tell(page, what, more = {}) {
  await page.screenshot({ path: `${task.pictures}/${String(++step).padStart(2, '0')}-${what}.png` })
  console.log(JSON.stringify({ step: what, ...more }))
}

// share is how much of the box's display, as the page shows it, has about this colour.
const share = (page, color) => page.evaluate(([r, g, b]) => {
  const c = document.querySelector('#screen canvas')
  if (!c?.width) return 0
  const px = c.getContext('2d').getImageData(0, 0, c.width, c.height).data
  let n = 0
  for (let i = 0; i < px.length; i += 4) if (Math.abs(px[i] - r) + Math.abs(px[i + 1] - g) + Math.abs(px[i + 2] - b) < 24) n++
  return n / (px.length / 4)
}, color)

async function shows(page, color) {
  for (const end = Date.now() + 30_000; ;) {
    const part = await share(page, color)
    if (part > 0.4) return part
    if (Date.now() > end) throw new Error(`the screen does not show ${color}: only ${part} of it does`)
    await new Promise((r) => setTimeout(r, 50))
  }
}

// dark is how many pixels of a strip of the display are nearly black: text, and the ring
// around what has the focus. A person waits until what was done is to be seen.
const dark = (page, [from, to]) => page.evaluate(([from, to]) => {
  const c = document.querySelector('#screen canvas')
  const px = c.getContext('2d').getImageData(0, from, c.width, to - from).data
  let n = 0
  for (let i = 0; i < px.length; i += 4) if (px[i] + px[i + 1] + px[i + 2] < 180) n++
  return n
}, [from, to])

async function darker(page, strip, by, act) {
  const was = await dark(page, strip)
  await act()
  for (const end = Date.now() + 30_000; await dark(page, strip) < was + by;) {
    if (Date.now() > end) throw new Error(`nothing of it is to be seen: ${await dark(page, strip)} after ${was}`)
    await new Promise((r) => setTimeout(r, 50))
  }
}

const name = [290, 370], word = [372, 450] // where the two fields are

// point is where a place of the box's display is on the page.
const point = (page, x, y) => page.evaluate(([x, y]) => {
  const c = document.querySelector('#screen canvas'), at = c.getBoundingClientRect()
  return [at.left + x * at.width / c.width, at.top + y * at.height / c.height]
}, [x, y])

try {
  const page = await browser.newPage()
  await page.setViewport({ width: 1280, height: 900 })
  await page.setExtraHTTPHeaders({ 'Accept-Language': 'ja' })
  await page.goto(task.signin)
  await Promise.all([page.waitForNavigation(), page.click('main form button')])
  await page.goto(task.app + '/takeovers')
  await tell(page, 'asked', { said: await page.$eval('blockquote', (e) => e.textContent) })
  await Promise.all([page.waitForNavigation(), page.click(`form[action="/boxes/${task.box}/seat"] button`)])
  await page.waitForSelector('#screen[data-state=open][data-seat=yes]', { timeout: 20_000 })
  await tell(page, 'sees', { part: await shows(page, [0x2a, 0x6f, 0xdb]) })
  await answers.next() // meanwhile the agent has tried to run something
  await darker(page, name, 500, async () => page.mouse.click(...await point(page, 640, 330)))
  await darker(page, name, 100, () => page.keyboard.type('aiko', { delay: 20 }))
  await darker(page, word, 500, async () => page.mouse.click(...await point(page, 640, 410)))
  await darker(page, word, 11 * 20, () => page.keyboard.type('open sesame', { delay: 20 }))
  await tell(page, 'typed')
  await page.keyboard.press('Enter')
  await tell(page, 'signed-in', { part: await shows(page, [0x1b, 0x9e, 0x4b]) })
  await page.type('textarea[name=message]', 'ログインしました。かごを見てください。')
  await tell(page, 'message')
  await Promise.all([page.waitForNavigation(), page.click('#leave-screen')])
  await tell(page, 'returned', { part: await share(page, [0x1b, 0x9e, 0x4b]) })
  await answers.next() // the agent has stopped the box
  await page.goto(`${task.app}/boxes/${task.box}#custody`)
  await tell(page, 'custody', { said: await page.$eval('.custody', (e) => e.textContent) })
} finally {
  lines.close()
  await browser.close()
}
