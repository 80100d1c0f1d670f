package app

import (
	"fmt"
	"strings"
	"time"

	"parallelsandbox/domain/money"
)

// stamp is a moment as a reader sees it.
type stamp struct {
	ISO  string // for machines
	Text string
	Full string
}

// when is a moment in the reader's zone. What is of today needs no date.
func (v *visit) when(at time.Time) stamp {
	if at.IsZero() {
		return stamp{}
	}
	local := at.In(v.Zone)
	s := stamp{ISO: at.UTC().Format(time.RFC3339Nano), Full: local.Format("2006-01-02 15:04:05 MST")}
	switch now := v.now.In(v.Zone); {
	case local.YearDay() == now.YearDay() && local.Year() == now.Year():
		s.Text = local.Format("15:04:05")
	case local.Year() == now.Year():
		s.Text = local.Format("01-02 15:04")
	default:
		s.Text = local.Format("2006-01-02")
	}
	return s
}

// exact is a moment to the second, with its date.
func (v *visit) exact(at time.Time) stamp {
	s := v.when(at)
	s.Text = at.In(v.Zone).Format("2006-01-02 15:04:05")
	return s
}

// ago is how long something is over, or how long it lasts by now.
func (v *visit) ago(at time.Time) string { return v.span(v.now.Sub(at)) }

// span rounds a duration to what a reader takes in.
func (v *visit) span(d time.Duration) string {
	switch d = max(d, 0); {
	case d == 0:
		return v.say("span.s", 0)
	case d < time.Second:
		return v.say("span.ms", d.Milliseconds())
	case d < 10*time.Second:
		return v.say("span.s", fmt.Sprintf("%.1f", d.Seconds()))
	case d < time.Minute:
		return v.say("span.s", int(d.Seconds()))
	case d < time.Hour && d%time.Minute < time.Second:
		return v.say("span.m", int(d.Minutes()))
	case d < 48*time.Hour && d%time.Hour < time.Minute:
		return v.say("span.h", int(d.Hours()))
	case d < time.Hour:
		return v.say("span.ms2", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return v.say("span.hm", int(d.Hours()), int(d.Minutes())%60)
	}
	return v.say("span.d", int(d.Hours())/24)
}

func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for ; f >= 1024 && i < len(units)-1; i++ {
		f /= 1024
	}
	if i == 0 || f >= 100 {
		return fmt.Sprintf("%.0f %s", f, units[i])
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// figure writes an amount of n parts, rounded to fewer decimals than it is kept with, and
// with a gap after every three digits.
func figure(n int64, places, show int) string {
	sign := ""
	if n < 0 {
		sign, n = "−", -n
	}
	unit := int64(1)
	for range places - show {
		unit *= 10
	}
	n = (n + unit/2) / unit
	digits := fmt.Sprintf("%0*d", show+1, n)
	whole, part := digits[:len(digits)-show], digits[len(digits)-show:]
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if n == 0 {
		sign = ""
	}
	return strings.TrimSuffix(sign+whole+"."+part, ".")
}

func credits(m money.Milli) string { return figure(int64(m), 3, 2) }

func dollars(m money.MicroUSD) string { return "$" + figure(int64(m), 6, 4) }
