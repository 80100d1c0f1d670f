// Shows the screen of a box, and lends it mouse and keyboard where the person holds them.
import RFB from '@novnc/novnc'

const place = document.getElementById('screen')
const said = document.getElementById('screen-said')
let rfb, attempts = 0, timer, seen = false

function say(name) {
  said.textContent = place.dataset['say' + name] ?? ''
  said.hidden = !said.textContent
  place.dataset.state = name.toLowerCase()
}

// A box that is starting, or frozen, has a screen later: the page is told, so it tries again.
function connect() {
  clearTimeout(timer)
  if (rfb || document.hidden) return
  const address = new URL(place.dataset.screen, location.href)
  address.protocol = address.protocol.replace('http', 'ws')
  say(seen ? 'Again' : 'Waiting')
  rfb = new RFB(place.querySelector('.glass'), address.href, { shared: true })
  rfb.viewOnly = place.dataset.seat !== 'yes'
  rfb.scaleViewport = true
  rfb.focusOnClick = true
  rfb.showDotCursor = true
  rfb.background = 'transparent'
  rfb.addEventListener('connect', () => {
    attempts = 0
    seen = true
    say('')
    place.dataset.state = 'open'
    if (!rfb.viewOnly && document.activeElement === document.body) rfb.focus()
  })
  rfb.addEventListener('disconnect', () => {
    rfb = undefined
    say(place.dataset.over === 'yes' ? 'Over' : seen ? 'Again' : 'None')
    if (place.dataset.over !== 'yes') timer = setTimeout(connect, Math.min(15000, 500 * 2 ** attempts++))
  })
}

// Every key goes to the box while the screen has the focus, so one leads out of it.
addEventListener('keydown', (e) => {
  if (e.key === 'F6' && e.shiftKey && place.contains(document.activeElement)) {
    e.preventDefault()
    e.stopImmediatePropagation()
    document.getElementById('leave-screen')?.focus()
  }
}, true)

document.addEventListener('click', (e) => { if (e.target.closest('[data-full]')) place.requestFullscreen() })
document.addEventListener('visibilitychange', () => { if (!document.hidden) connect() })
document.addEventListener('psbx:live', () => {
  const now = document.getElementById('phase')?.dataset.over
  if (now) place.dataset.over = now
  if (!rfb && now !== 'yes') { attempts = 0; connect() }
})
connect()
