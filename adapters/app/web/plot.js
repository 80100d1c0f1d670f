// Draws the usage by day from the table that is on the page anyway.
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'

const place = document.querySelector('[data-plot]')

// colours come from the style sheet, so that both themes have theirs.
function colour(name) {
  return getComputedStyle(place).getPropertyValue(name).trim()
}

function draw() {
  const table = document.getElementById(place.dataset.plot) // news may have replaced it
  place.replaceChildren()
  if (!table) return
  const days = [], series = [], kinds = [...table.tHead.rows[0].querySelectorAll('[data-series]')]
  for (const row of [...table.tBodies[0].rows].reverse()) {
    days.push(Date.parse(row.dataset.day + 'T00:00:00Z') / 1000)
    ;row.querySelectorAll('[data-value]').forEach((cell, i) => (series[i] ??= []).push(Number(cell.dataset.value)))
  }
  if (!days.length) return
  // Stacked: each layer is drawn on top of what lies below it, the highest first.
  const stacked = series.map((_, i) => days.map((_, d) => series.slice(0, i + 1).reduce((sum, s) => sum + s[d], 0)))
  const bars = uPlot.paths.bars({ size: [0.7, 36], align: 0 })
  const ink = colour('--soft'), line = colour('--line')
  const day = new Intl.DateTimeFormat(document.documentElement.lang, { month: 'short', day: 'numeric', timeZone: 'UTC' })
  const axis = { stroke: ink, font: '12px system-ui, sans-serif', grid: { stroke: line, width: 1 }, ticks: { show: false } }
  new uPlot({
    width: place.clientWidth, height: place.clientHeight,
    tzDate: (s) => uPlot.tzDate(new Date(s * 1000), 'UTC'),
    legend: { show: false }, cursor: { show: false }, padding: [12, 4, 0, 0],
    scales: { x: { time: true, range: (_, min, max) => [min - 43200, max + 43200] }, y: { range: (_, min, max) => [0, max * 1.1 || 1] } },
    axes: [
      { ...axis, grid: { show: false }, space: 56, size: 30, incrs: [86400, 172800, 604800, 1209600, 2592000], values: (_, at) => at.map((s) => day.format(s * 1000)) },
      { ...axis, size: 52 },
    ],
    series: [{}, ...stacked.map((_, i) => ({
      fill: colour(`--series-${kinds[kinds.length - 1 - i].dataset.series}`), width: 0, points: { show: false }, paths: bars,
    }))],
  }, [days, ...stacked.toReversed()], place)
}

if (place) {
  draw()
  let pending
  new ResizeObserver(() => { cancelAnimationFrame(pending); pending = requestAnimationFrame(draw) }).observe(place)
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw)
  document.addEventListener('psbx:live', draw)
}
