// Package bench measures the product beside the floors of the machine it runs on: the
// same work with as little of us in between as possible, in the same run. Ratios mean
// something on any machine; the numbers alone belong to one.
//
// Read bench.go for what a row is and how it is run, then ledger.go, money.go, usage.go, service.go,
// rest.go, screen.go and history.go for the measurements.
package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"parallelsandbox/cmd/internal/wire"
)

// Row is one measurement. Ratio is Value over Floor; Command repeats it.
type Row struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Floor   float64 `json:"floor,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"`
	Target  string  `json:"target"` // what was promised, for people
	Command string  `json:"command"`
}

func row(name string, value float64, unit string, floor float64, target string) Row {
	r := Row{Name: name, Value: value, Unit: unit, Floor: floor, Target: target, Command: "psbx bench " + name}
	if floor > 0 {
		r.Ratio = value / floor
	}
	return r
}

// group measures several rows that share a set-up.
type group struct {
	rows []string
	run  func(context.Context, *Bench) ([]Row, error)
}

var groups = []group{
	{[]string{"ledger.single", "ledger.group64"}, ledgerRows},
	{[]string{"replay.1m"}, replayRows},
	{[]string{"meter.10k"}, meterRows},
	{[]string{"list.10k"}, listRows},
	{[]string{"usage.query.10m"}, usageRows},
	{[]string{"exec.host", "exec.rtt", "exec.rtt.100k"}, execRows},
	{[]string{"start.cold"}, startRows},
	{[]string{"start.spare", "start.spare.p99"}, spareRows},
	{[]string{"spare.cold", "spare.restored", "thaw.small"}, smallRows},
	{[]string{"freeze.500mb", "thaw.500mb", "frozen.ram"}, largeRows},
	{[]string{"shot.screen"}, shotRows},
	{[]string{"start.desktop.spare"}, desktopSpareRows},
	{[]string{"input.echo"}, echoRows},
	{[]string{"thaw.desktop"}, desktopRestRows},
}

// Names lists the rows there are.
func Names() (names []string) {
	for _, g := range groups {
		names = append(names, g.rows...)
	}
	return names
}

// Bench is where a measurement runs.
type Bench struct {
	Config wire.Config // its data directory is empty and goes afterwards
	Log    io.Writer   // progress
}

// Run measures the named rows, or all of them.
func (b *Bench) Run(ctx context.Context, names []string) ([]Row, error) {
	for _, n := range names {
		if !slices.Contains(Names(), n) {
			return nil, fmt.Errorf("there is no row %q; there are %s", n, strings.Join(Names(), ", "))
		}
	}
	var rows []Row
	for _, g := range groups {
		if len(names) > 0 && !slices.ContainsFunc(g.rows, func(r string) bool { return slices.Contains(names, r) }) {
			continue
		}
		fmt.Fprintf(b.Log, "measuring %s …\n", strings.Join(g.rows, ", "))
		more, err := g.run(ctx, b)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", g.rows[0], err)
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// Print writes rows as a table, or one JSON object a line.
func Print(w io.Writer, rows []Row, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		for _, r := range rows {
			if err := enc.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ROW\tVALUE\tUNIT\tFLOOR\tRATIO\tTARGET")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%.2f\t%s\t%.2f\t%.2f\t%s\n", r.Name, r.Value, r.Unit, r.Floor, r.Ratio, r.Target)
	}
	return t.Flush()
}

// sample times f n times.
func sample(n int, f func() error) ([]time.Duration, error) {
	times := make([]time.Duration, 0, n)
	for range n {
		began := time.Now()
		if err := f(); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
	}
	return times, nil
}

func median(times []time.Duration) float64 { return percentile(times, 50) }

// percentile is the shortest time in which p of a hundred are done, in milliseconds.
func percentile(times []time.Duration, p int) float64 {
	times = slices.Sorted(slices.Values(times))
	return ms(times[(len(times)*p+99)/100-1])
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
