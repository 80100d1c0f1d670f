package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/audit"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/pricing"
)

// reading runs something on a ledger that may be in use.
func reading(c *wire.Config, do func(*cobra.Command, *wire.Stores) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		s, err := wire.ReadStores(*c)
		if err != nil {
			return err
		}
		defer s.Close()
		return do(cmd, s)
	}
}

func ledgerReplay(c *wire.Config) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "replay", Short: "Add up all money from the first event: totals by tenant and kind, and a digest", Args: cobra.NoArgs,
		Long: "Add up all money from the first event: totals by tenant and kind, and a digest over every event of it. Two replays of\n" +
			"the same ledger print the same. Nothing is changed, and nothing but the ledger is read.",
		RunE: reading(c, func(cmd *cobra.Command, s *wire.Stores) error {
			r, err := audit.Replay(cmd.Context(), s.Ledger, s.Codec)
			if err != nil {
				return fmt.Errorf("ledger replay: %w", err)
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(r)
			}
			return printReplay(cmd.OutOrStdout(), r)
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func printReplay(out io.Writer, r audit.Replayed) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TENANT\tBALANCE\tGRANTED\tREFUNDED\tDEBITED\tEXPIRED\tWITHDRAWN\tUSD")
	for _, a := range r.Accounts {
		t := a.Totals
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", a.Tenant, a.Balance, t.Granted, t.Refunded, t.Debited, t.Expired, t.Withdrawn, t.Cost)
	}
	fmt.Fprintln(w, "\nTENANT\tKIND\tEVENTS\tQUANTITY\tCREDITS\tUSD")
	for _, a := range r.Accounts {
		for _, k := range pricing.Kinds {
			if u, used := a.Usage[k]; used {
				fmt.Fprintf(w, "%s\t%s\t%d\t%d %ss\t%s\t%s\n", a.Tenant, k, u.Events, u.Quantity, k.Unit(), u.Credits, u.Cost)
			}
		}
	}
	fmt.Fprintf(w, "\n%d events of money, up to position %d\ndigest %s\n", r.Events, r.Position, r.Digest)
	return w.Flush()
}

func ledgerAudit(c *wire.Config) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "audit", Short: "Compute every figure of money again, and report each difference", Args: cobra.NoArgs,
		Long: "Compute every debit again from the events of its box and the prices in force, every draw, grant, expiry and correction, and\n" +
			"report each that differs, and each that is missing. Usage of the last minutes may be settled a little later.",
		RunE: reading(c, func(cmd *cobra.Command, s *wire.Stores) error {
			r, err := audit.Audit(cmd.Context(), s.Ledger, s.Codec)
			if err != nil {
				return fmt.Errorf("ledger audit: %w", err)
			}
			if asJSON {
				if err := json.NewEncoder(cmd.OutOrStdout()).Encode(r); err != nil {
					return err
				}
			} else {
				printAudit(cmd.OutOrStdout(), r)
			}
			if n := len(r.Differences); n > 0 {
				return fmt.Errorf("ledger audit: %d differences", n)
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func printAudit(out io.Writer, r audit.Report) {
	for _, d := range r.Differences {
		fmt.Fprintln(out, d)
	}
	fmt.Fprintf(out, "%d accounts, %d boxes, %d debits, %d s of box time, up to position %d\n", r.Accounts, r.Boxes, r.Debits, r.Seconds, r.Position)
	if len(r.Differences) == 0 {
		fmt.Fprintln(out, "audit: ok")
	}
}

// period is the time that a command is about.
type period struct{ month, from, until string }

func (p *period) flags(cmd *cobra.Command, what string) {
	cmd.Flags().StringVar(&p.month, "month", "", what)
}

// bounds are the beginning and the end of it, zero where there is none.
func (p *period) bounds() (from, until time.Time, err error) {
	if p.month != "" {
		if from, err = time.Parse("2006-01", p.month); err != nil {
			return from, until, fmt.Errorf("--month: %q is not a month such as 2026-10", p.month)
		}
		return from, from.AddDate(0, 1, 0), nil
	}
	if p.from != "" {
		if from, err = momentOf("--from", p.from); err != nil {
			return from, until, err
		}
	}
	if p.until != "" {
		until, err = momentOf("--until", p.until)
	}
	return from, until, err
}

func ledgerRerate(c *wire.Config) *cobra.Command {
	var p period
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "rerate", Short: "Say what the usage of a month would have cost by a draft of prices", Args: cobra.NoArgs,
		Example: "  psbx price show --json > draft.json; psbx ledger rerate --book draft.json --month 2026-10",
		RunE: reading(c, func(cmd *cobra.Command, s *wire.Stores) error {
			draft, err := readDraft(file)
			if err != nil {
				return err
			}
			if p.month == "" {
				p.month = credit.MonthOf(time.Now()).AddDate(0, -1, 0).Format("2006-01")
			}
			from, until, err := p.bounds()
			if err != nil {
				return err
			}
			all, err := audit.Rerate(cmd.Context(), s.Ledger, s.Codec, draft, from, until)
			if err != nil {
				return fmt.Errorf("ledger rerate: %w", err)
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(all)
			}
			return printRerated(cmd.OutOrStdout(), p.month, all)
		}),
	}
	cmd.Flags().StringVar(&file, "book", "", "file of the draft")
	p.flags(cmd, "month of the usage, UTC, such as 2026-10 (default the last one)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON array")
	_ = cmd.MarkFlagRequired("book") // fails only for a flag that is not there
	return cmd
}

func printRerated(out io.Writer, month string, all []audit.Rerated) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "usage of %s\n", month)
	fmt.Fprintln(w, "TENANT\tEVENTS\tUSD\tWOULD BE\tCREDITS\tWOULD BE")
	var was, would audit.Used
	for _, r := range all {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", r.Tenant, r.Was.Events, r.Was.Cost, r.Would.Cost, r.Was.Credits, r.Would.Credits)
		was.Events, was.Cost, was.Credits = was.Events+r.Was.Events, was.Cost+r.Was.Cost, was.Credits+r.Was.Credits
		would.Cost, would.Credits = would.Cost+r.Would.Cost, would.Credits+r.Would.Credits
	}
	fmt.Fprintf(w, "all\t%d\t%s\t%s\t%s\t%s\n", was.Events, was.Cost, would.Cost, was.Credits, would.Credits)
	return w.Flush()
}

// usageLine is one usage event as it is exported.
type usageLine struct {
	Position  ledger.Position `json:"position"`
	ID        string          `json:"id"`
	Tenant    string          `json:"tenant"`
	Box       string          `json:"box"`
	Kind      pricing.Kind    `json:"kind"`
	From      time.Time       `json:"from"`
	Quantity  int64           `json:"quantity"`
	Unit      string          `json:"unit"`
	MicroUSD  money.MicroUSD  `json:"microUsd"`
	Credits   money.Milli     `json:"milliCredits"`
	Book      int             `json:"book"`
	Late      bool            `json:"late"`
	SettledAt time.Time       `json:"settledAt"`
}

// usageSum is the last line of an export: it is about all the lines before it, byte for byte.
type usageSum struct {
	Events   int64          `json:"events"`
	MicroUSD money.MicroUSD `json:"microUsd"`
	Credits  money.Milli    `json:"milliCredits"`
	SHA256   string         `json:"sha256"`
}

func ledgerUsage(c *wire.Config) *cobra.Command {
	var p period
	var tenant string
	cmd := &cobra.Command{
		Use: "usage", Short: "Write every usage event as one line of JSON, with sums and a checksum at the end", Args: cobra.NoArgs,
		Example: "  psbx ledger usage --month 2026-10 > usage.ndjson\n  head -n -1 usage.ndjson | sha256sum   # is what the last line says",
		RunE: reading(c, func(cmd *cobra.Command, s *wire.Stores) error {
			from, until, err := p.bounds()
			if err != nil {
				return err
			}
			return exportUsage(cmd, s, func(d credit.Debited) bool {
				return (tenant == "" || d.Tenant == tenant) && !d.From.Before(from) && (until.IsZero() || d.From.Before(until))
			})
		}),
	}
	cmd.Flags().StringVar(&tenant, "tenant", "", "only of this tenant")
	p.flags(cmd, "only what was used in a month, UTC, such as 2026-10")
	cmd.Flags().StringVar(&p.from, "from", "", "only what was used from a day or a time on")
	cmd.Flags().StringVar(&p.until, "until", "", "only what was used before a day or a time")
	cmd.MarkFlagsMutuallyExclusive("month", "from")
	cmd.MarkFlagsMutuallyExclusive("month", "until")
	return cmd
}

func exportUsage(cmd *cobra.Command, s *wire.Stores, chosen func(credit.Debited) bool) error {
	sha := sha256.New()
	out := bufio.NewWriter(cmd.OutOrStdout())
	enc := json.NewEncoder(io.MultiWriter(out, sha))
	var sum usageSum
	for r, err := range s.Ledger.Tail(cmd.Context(), 0) {
		if err != nil {
			return err
		}
		if r.Type != "credit.debited" {
			continue
		}
		v, err := s.Codec.Decode(r.Entry)
		if err != nil {
			return fmt.Errorf("position %d: %w", r.Position, err)
		}
		d, ok := v.(credit.Debited)
		if !ok || !chosen(d) {
			continue
		}
		line := usageLine{r.Position, r.ID, d.Tenant, d.Box, d.Kind, d.From, d.Quantity, d.Unit, d.Cost, d.Amount, d.Book, d.Late, d.At}
		if err := enc.Encode(line); err != nil {
			return err
		}
		sum.Events, sum.MicroUSD, sum.Credits = sum.Events+1, sum.MicroUSD+d.Cost, sum.Credits+d.Amount
	}
	sum.SHA256 = hex.EncodeToString(sha.Sum(nil))
	if err := json.NewEncoder(out).Encode(sum); err != nil {
		return err
	}
	return out.Flush()
}
