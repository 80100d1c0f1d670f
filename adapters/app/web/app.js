// What every page does by itself: it takes in news, and moves along the history of a box.
// Everything works without this file; it only spares reloading.

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone
if (zone && !document.cookie.includes('psbx_tz=' + encodeURIComponent(zone))) {
  const secure = location.protocol === 'https:' ? '; Secure' : ''
  document.cookie = 'psbx_tz=' + encodeURIComponent(zone) + '; Path=/; Max-Age=31536000; SameSite=Lax' + secure
}

// morph makes one element like another and leaves alone what is the same: the focus, what
// was typed, and what was opened stay.
function morph(from, to) {
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name) && !(name === 'open' && from.tagName === 'DETAILS')) from.removeAttribute(name)
  }
  for (const { name, value } of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value)
  if (from.tagName === 'TEXTAREA' || from.tagName === 'INPUT') return
  let at = from.firstChild
  for (const wanted of [...to.childNodes]) {
    let found = at
    while (found && !alike(found, wanted)) found = found.nextSibling
    if (!found) from.insertBefore(wanted, at)
    else {
      if (found !== at) from.insertBefore(found, at)
      else at = at.nextSibling
      if (found.nodeType === 1) morph(found, wanted)
      else if (found.data !== wanted.data) found.data = wanted.data
    }
  }
  while (at) {
    const gone = at
    at = at.nextSibling
    gone.remove()
  }
}

function alike(a, b) {
  return a.nodeName === b.nodeName && a.dataset?.key === b.dataset?.key && a.getAttribute?.('action') === b.getAttribute?.('action')
}

function takeIn(news) {
  for (const [name, html] of Object.entries(news)) {
    const place = document.querySelector(`[data-region="${name}"]`)
    if (!place) continue
    const made = document.createElement('template')
    made.innerHTML = html
    const wanted = place.cloneNode(false)
    wanted.append(made.content)
    morph(place, wanted)
  }
  const count = document.querySelector('.count')?.textContent
  document.title = (count ? `(${count}) ` : '') + document.title.replace(/^\(\d+\) /, '')
  document.dispatchEvent(new Event('psbx:live'))
}

const live = document.body.dataset.live
if (live) {
  const said = document.getElementById('news')
  let source, late
  const listen = () => {
    source = new EventSource(live)
    source.onmessage = (e) => takeIn(JSON.parse(e.data))
    source.onopen = () => { clearTimeout(late); late = undefined; said.textContent = '' }
    source.onerror = () => {
      late ??= setTimeout(() => { said.textContent = said.dataset.lost }, 4000)
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, 5000)
    }
  }
  listen()
  // A page that nobody sees needs no news.
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) source.close()
    else if (source.readyState === EventSource.CLOSED) listen()
  })
}

document.addEventListener('click', async (e) => {
  const copy = e.target.closest('[data-copy]')
  if (copy) {
    await navigator.clipboard.writeText(document.getElementById(copy.dataset.copy).textContent)
    copy.textContent = copy.dataset.copied
  }
  if (e.target.closest('[data-print]')) print()
  for (const open of document.querySelectorAll('details.menu[open], details.ask[open]')) {
    if (!open.contains(e.target)) open.open = false
  }
})
document.addEventListener('keydown', (e) => {
  if (e.key !== 'Escape') return
  for (const open of document.querySelectorAll('details.menu[open], details.ask[open]')) {
    open.open = false
    open.querySelector('summary').focus()
  }
})

// Text for the screen is sent without leaving the page.
document.addEventListener('submit', async (e) => {
  const form = e.target.closest('form[data-quiet]')
  if (!form) return
  e.preventDefault()
  const answer = await fetch(form.action, { method: 'POST', body: new URLSearchParams(new FormData(form)), headers: { 'X-Requested-With': 'page' } }).catch(() => undefined)
  if (answer?.ok) form.querySelector('input[name=text]').value = ''
  else form.submit() // which shows what is wrong
})

const scrub = document.querySelector('[data-moment]')
if (scrub) {
  const slider = scrub.querySelector('input[type=range]'), shown = document.getElementById('moment')
  let pending, asked = 0, now = !/[?&](at|ms)=/.test(location.search), at = Number(slider.value)
  const show = (query, delay) => {
    clearTimeout(pending)
    pending = setTimeout(async () => {
      const mine = ++asked
      const answer = await fetch(scrub.dataset.moment + query).catch(() => undefined)
      if (answer?.ok && mine === asked) shown.innerHTML = await answer.text()
    }, delay)
  }
  const events = () => [...document.querySelectorAll('.events [data-at]')].reverse()
  const go = (event) => {
    now = false
    at = Number(event.dataset.ms)
    slider.value = at
    scrub.dataset.revision = event.dataset.at
    for (const e of document.querySelectorAll('.events [aria-current]')) e.removeAttribute('aria-current')
    event.closest('li').setAttribute('aria-current', 'true')
    show('&at=' + event.dataset.at, 0)
  }
  slider.addEventListener('input', () => {
    now = false
    at = Number(slider.value)
    delete scrub.dataset.revision
    show('&ms=' + at, 60)
  })
  scrub.addEventListener('click', (e) => {
    const step = e.target.closest('[data-step]'), all = events()
    if (step) {
      const here = all.findIndex((x) => x.dataset.at === scrub.dataset.revision)
      const next = here >= 0 ? here + Number(step.dataset.step)
        : step.dataset.step > 0 ? all.findIndex((x) => Number(x.dataset.ms) > at) : all.findLastIndex((x) => Number(x.dataset.ms) <= at)
      if (all[next]) go(all[next])
    }
    if (e.target.closest('[data-now]')) {
      e.preventDefault()
      now = true
      delete scrub.dataset.revision
      slider.value = slider.max
      show('', 0)
    }
  })
  document.addEventListener('click', (e) => {
    const event = e.target.closest('.events [data-at]')
    if (event) {
      e.preventDefault()
      go(event)
    }
  })
  scrub.querySelector('[data-nojs]').hidden = true
  // The strip grows while the box lives; the slider stays where its moment is.
  let newest = document.querySelector('.events [data-at]')?.dataset.at
  document.addEventListener('psbx:live', () => {
    slider.max = document.querySelector('.strip')?.dataset.span ?? slider.max
    slider.value = now ? slider.max : at
    const top = document.querySelector('.events [data-at]')?.dataset.at
    if (now && top !== newest) show('', 0)
    newest = top
  })
}
