package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/tenant"
)

func credits(c *wire.Config) *cobra.Command {
	cmd := &cobra.Command{Use: "credit", Short: "Look at a tenant's credits, and correct them"}
	cmd.AddCommand(creditShow(c), creditGrant(c), creditRefund(c), creditWithdraw(c))
	return cmd
}

// booking is what every entry by hand says.
type booking struct {
	reference, reason, approver string
	expires                     string
}

func (b *booking) flags(cmd *cobra.Command, expires bool) {
	f := cmd.Flags()
	f.StringVar(&b.reference, "reference", "", "what it is booked for, such as a ticket or a payment; the same reference is booked once")
	f.StringVar(&b.reason, "reason", "", "why; it stays on the ledger for good")
	f.StringVar(&b.approver, "approver", "", "who approves it")
	if expires {
		f.StringVar(&b.expires, "expires", "", "when what is left of it is gone: a day such as 2027-01-31, or a time in RFC 3339 (default never)")
	}
}

func (b *booking) expiry() (*time.Time, error) {
	if b.expires == "" {
		return nil, nil
	}
	at, err := momentOf("--expires", b.expires)
	return &at, err
}

// momentOf reads a time, or a day, which is its beginning in UTC.
func momentOf(flag, text string) (time.Time, error) {
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(form, text); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%s: %q is neither a day such as 2027-01-31 nor a time such as 2027-01-31T12:00:00Z", flag, text)
}

// book carries out what a command line asks for, and prints how the credits stand then.
func book(c *wire.Config, cmd *cobra.Command, args []string, make func(amount money.Milli, now time.Time) (credit.Command, error)) error {
	amount, err := money.ParseCredits(args[1])
	if err != nil {
		return err
	}
	what, err := make(amount, time.Now().UTC())
	if err != nil {
		return err
	}
	s, err := wire.OpenStores(*c)
	if err != nil {
		return err
	}
	defer s.Close()
	st, booked, err := wire.NewOperator(s).BookCredits(cmd.Context(), tenant.ID(args[0]), what)
	if err != nil {
		return err
	}
	said := "Booked."
	if len(booked) == 0 {
		said = "This reference is booked already; nothing was changed."
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s The balance of %s is %s credits.\n", said, args[0], st.Balance())
	return nil
}

func creditGrant(c *wire.Config) *cobra.Command {
	var b booking
	var source string
	cmd := &cobra.Command{
		Use: "grant <tenant> <credits>", Short: "Give a tenant credits", Args: cobra.ExactArgs(2),
		Example: "  psbx credit grant acme 250 --reference fair-2026 --reason 'won at the fair' --approver ana --expires 2027-01-31",
		RunE: func(cmd *cobra.Command, args []string) error {
			return book(c, cmd, args, func(amount money.Milli, now time.Time) (credit.Command, error) {
				expires, err := b.expiry()
				return credit.Grant{
					Tenant: args[0], Bucket: wire.NewID(), Source: credit.Source(source), Amount: amount, ExpiresAt: expires,
					Reference: b.reference, Reason: b.reason, Approver: b.approver, At: now,
				}, err
			})
		},
	}
	b.flags(cmd, true)
	cmd.Flags().StringVar(&source, "source", string(credit.Promo), "promo, or purchase for what was paid for some other way")
	return cmd
}

func creditRefund(c *wire.Config) *cobra.Command {
	var b booking
	var box, usd string
	cmd := &cobra.Command{
		Use: "refund <tenant> <credits>", Short: "Give credits back for usage that should not have been billed", Args: cobra.ExactArgs(2),
		Long: "Give credits back for usage that should not have been billed. No debit goes: the refund stands beside them.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return book(c, cmd, args, func(amount money.Milli, now time.Time) (credit.Command, error) {
				expires, err := b.expiry()
				if err != nil {
					return nil, err
				}
				cost, err := money.ParseUSD(usd)
				return credit.GiveBack{
					Tenant: args[0], Bucket: wire.NewID(), Amount: amount, Cost: cost, Box: box, ExpiresAt: expires,
					Reference: b.reference, Reason: b.reason, Approver: b.approver, At: now,
				}, err
			})
		},
	}
	b.flags(cmd, true)
	cmd.Flags().StringVar(&box, "box", "", "the box whose usage it was")
	cmd.Flags().StringVar(&usd, "usd", "0", "what that usage cost in US dollars, where sums of dollars should be less")
	return cmd
}

func creditWithdraw(c *wire.Config) *cobra.Command {
	var b booking
	cmd := &cobra.Command{
		Use: "withdraw <tenant> <credits>", Short: "Take credits away, such as those of a payment that was refunded", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return book(c, cmd, args, func(amount money.Milli, now time.Time) (credit.Command, error) {
				return credit.Withdraw{Tenant: args[0], Amount: amount, Reference: b.reference, Reason: b.reason, Approver: b.approver, At: now}, nil
			})
		},
	}
	b.flags(cmd, false)
	return cmd
}

func creditShow(c *wire.Config) *cobra.Command {
	var at string
	cmd := &cobra.Command{
		Use: "show <tenant>", Short: "Print balance, buckets and totals, now or as of an earlier time", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := wire.ReadStores(*c)
			if err != nil {
				return err
			}
			defer s.Close()
			st, err := creditsAt(cmd.Context(), s, tenant.ID(args[0]), at)
			if err != nil {
				return err
			}
			return printCredits(cmd.OutOrStdout(), args[0], st)
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "as of the beginning of a day such as 2027-01-31, or of a time in RFC 3339")
	return cmd
}

func creditsAt(ctx context.Context, s *wire.Stores, id tenant.ID, at string) (credit.State, error) {
	t, _, err := s.Tenants.Load(ctx, tenant.StreamOf(id))
	if err != nil {
		return credit.State{}, err
	}
	if t.ID == "" {
		return credit.State{}, tenant.ErrUnknown
	}
	if at == "" {
		st, _, err := s.Credits.Load(ctx, credit.StreamOf(string(id)))
		return st, err
	}
	until, err := momentOf("--at", at)
	if err != nil {
		return credit.State{}, err
	}
	st, _, err := s.Credits.LoadUntil(ctx, credit.StreamOf(string(id)), func(r ledger.Record) bool { return !r.At.After(until) })
	return st, err
}

func printCredits(out io.Writer, id string, st credit.State) error {
	t := st.Totals
	fmt.Fprintf(out, "%s has %s credits: %s granted + %s refunded - %s debited - %s expired - %s withdrawn\n",
		id, st.Balance(), t.Granted, t.Refunded, t.Debited, t.Expired, t.Withdrawn)
	fmt.Fprintf(out, "usage of %s USD in %d events; %s credits are owed\n", t.Cost, t.Debits, st.Owed)
	if len(st.Buckets) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "BUCKET\tSOURCE\tLEFT\tOF\tGRANTED\tEXPIRES")
	for _, b := range st.Buckets { // in the order in which they are drawn on
		expires := "never"
		if b.ExpiresAt != nil {
			expires = b.ExpiresAt.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", b.ID, b.Source, b.Left, b.Granted, b.GrantedAt.UTC().Format(time.RFC3339), expires)
	}
	return w.Flush()
}
