package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"parallelsandbox/cmd/internal/agent"
	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/audit"
)

// settled is how long the demo waits for the meter to debit what its boxes used.
const settled = 30 * time.Second

// usage is a line of usage as the API has it.
type usage struct {
	Box      string      `json:"box"`
	Kind     string      `json:"kind"`
	Quantity int64       `json:"quantity"`
	CostUSD  json.Number `json:"cost_usd"`
	Credits  json.Number `json:"credits"`
	At       time.Time   `json:"at"`
}

// bill prints what the boxes cost and what is left, and has every figure computed once more.
func (d *Demo) bill(ctx context.Context, run *wire.Running, boxes []string) error {
	lines, err := used(ctx, run, boxes)
	if err != nil {
		return err
	}
	calls := 0
	for _, l := range lines {
		if l.Kind != "box" {
			calls++
			continue
		}
		fmt.Fprintf(d.Out, "  %s  box %s  %2d s  %8s credits  %s USD\n", l.At.Format("15:04"), l.Box, l.Quantity, l.Credits, l.CostUSD)
	}
	fmt.Fprintf(d.Out, "  and %d calls, which cost nothing by the book of prices\n", calls)
	var credits struct {
		Balance json.Number `json:"balance"`
		Totals  struct {
			Granted json.Number `json:"granted"`
			Debited json.Number `json:"debited"`
		} `json:"totals"`
	}
	if err := ask(ctx, run, "/v1/credits", &credits); err != nil {
		return err
	}
	fmt.Fprintf(d.Out, "\n  balance: %s credits (%s granted, %s debited)\n", credits.Balance, credits.Totals.Granted, credits.Totals.Debited)
	report, err := audit.Audit(ctx, run.Ledger, run.Codec)
	if err != nil {
		return err
	}
	if len(report.Differences) > 0 {
		return fmt.Errorf("the audit finds %v", report.Differences)
	}
	fmt.Fprintf(d.Out, "  audit: ok (%d debits, %d s of box time)\n", report.Debits, report.Seconds)
	return nil
}

// used waits until every box that ran is settled, and returns all lines.
func used(ctx context.Context, run *wire.Running, boxes []string) ([]usage, error) {
	for end := time.Now().Add(settled); ; {
		var page struct {
			Usage []usage `json:"usage"`
		}
		if err := ask(ctx, run, "/v1/usage?limit=500", &page); err != nil {
			return nil, err
		}
		missing := slices.DeleteFunc(slices.Clone(boxes), func(id string) bool {
			return slices.ContainsFunc(page.Usage, func(u usage) bool { return u.Box == id && u.Kind == "box" })
		})
		if len(missing) == 0 {
			return page.Usage, nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("nothing is debited for the boxes %v", missing)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func ask(ctx context.Context, run *wire.Running, path string, out any) error {
	body, err := agent.Request(ctx, http.MethodGet, run.URL+path, run.First.Secret, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(body), out)
}
