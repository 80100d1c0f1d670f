package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// show prints what happens, step by step.
type show struct {
	out   io.Writer
	began time.Time
	steps int
}

func (s *show) title(format string, args ...any) {
	fmt.Fprintf(s.out, "\n"+format+"\n", args...)
}

// step runs one step and says how it went. Its answer is shown beside it.
func (s *show) step(what string, do func() (answer string, err error)) error {
	began := time.Now()
	answer, err := do()
	took := time.Since(began)
	if err != nil {
		fmt.Fprintf(s.out, "  ✗ %-58s %6.2f s\n", what, took.Seconds())
		return fmt.Errorf("%s: %w", what, err)
	}
	s.steps++
	fmt.Fprintf(s.out, "  ✓ %-58s %6.2f s", what, took.Seconds())
	if answer != "" {
		fmt.Fprintf(s.out, "  %s", strings.TrimSpace(answer))
	}
	fmt.Fprintln(s.out)
	return nil
}

// want fails unless got holds what was expected.
func want(got, expected string) error {
	if !strings.Contains(got, expected) {
		return fmt.Errorf("got %q, which does not hold %q", got, expected)
	}
	return nil
}
