package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/pricing"
)

func prices(c *wire.Config) *cobra.Command {
	cmd := &cobra.Command{Use: "price", Short: "Look at the books of prices, and publish new ones"}
	cmd.AddCommand(priceShow(c), pricePublish(c))
	return cmd
}

func priceShow(c *wire.Config) *cobra.Command {
	var at string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "show", Short: "Print the books of prices, and what is in force", Args: cobra.NoArgs,
		Example: "  psbx price show --json > draft.json   # to be changed, tried with psbx ledger rerate, and published",
		RunE: func(cmd *cobra.Command, _ []string) error {
			when := time.Now().UTC()
			if at != "" {
				var err error
				if when, err = momentOf("--at", at); err != nil {
					return err
				}
			}
			s, err := wire.ReadStores(*c)
			if err != nil {
				return err
			}
			defer s.Close()
			st, _, err := s.Prices.Load(cmd.Context(), pricing.Stream)
			if err != nil {
				return err
			}
			book, ok := st.At(when)
			if !ok {
				return fmt.Errorf("no book of prices is in force at %s; the first start of psbx serve publishes one", when.Format(time.RFC3339))
			}
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(book.Draft)
			}
			return printBooks(cmd.OutOrStdout(), st, book)
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "what was or will be in force at a day such as 2027-01-31, or a time in RFC 3339 (default now)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "the book in force as a draft for the next")
	return cmd
}

func printBooks(out io.Writer, st pricing.State, in pricing.Book) error {
	for _, b := range st.Books {
		from, mark := "the beginning", ""
		if !b.From.IsZero() {
			from = b.From.UTC().Format(time.RFC3339)
		}
		if b.Number == in.Number {
			mark = ", in force"
		}
		fmt.Fprintf(out, "book %d, from %s%s: %s\n", b.Number, from, mark, b.Note)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KIND\tUSD\tCREDITS\tPER")
	for _, k := range pricing.Kinds {
		p := in.Prices[k]
		if p.Per == 0 {
			p.Per = 1
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d %s\n", k, money.MicroUSD(p.MicroUSD), money.Milli(p.MilliCredits), p.Per, k.Unit())
	}
	fmt.Fprintln(w, "\nPLAN\tCREDITS A MONTH")
	for _, plan := range []string{"free", "pro", "max"} {
		fmt.Fprintf(w, "%s\t%s\n", plan, money.Milli(in.Grants[plan]))
	}
	return w.Flush()
}

func pricePublish(c *wire.Config) *cobra.Command {
	var from, approver string
	cmd := &cobra.Command{
		Use: "publish <file>", Short: "Put a draft in force from a minute to come", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			draft, err := readDraft(args[0])
			if err != nil {
				return err
			}
			if from == "" {
				return fmt.Errorf("say with --from when the prices begin")
			}
			begin, err := momentOf("--from", from)
			if err != nil {
				return err
			}
			s, err := wire.OpenStores(*c)
			if err != nil {
				return err
			}
			defer s.Close()
			out, err := wire.NewOperator(s).PublishPrices(cmd.Context(), pricing.Publish{Draft: draft, From: begin, Approver: approver, At: time.Now().UTC()})
			if err != nil {
				return err
			}
			book := out.State.Books[len(out.State.Books)-1]
			fmt.Fprintf(cmd.OutOrStdout(), "Book %d is in force from %s on.\n", book.Number, book.From.Format(time.RFC3339))
			return nil
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "when the prices begin: a day such as 2027-01-31, or a whole minute in RFC 3339")
	cmd.Flags().StringVar(&approver, "approver", "", "who approves them")
	return cmd
}

// readDraft reads a book that is not published. A field that is not known is a mistake.
func readDraft(path string) (d pricing.Draft, err error) {
	f, err := os.Open(path)
	if err != nil {
		return d, err
	}
	defer f.Close()
	dec := json.NewDecoder(f)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		return d, fmt.Errorf("%s: %w; psbx price show --json prints one that can be changed", path, err)
	}
	return d, pricing.Check(d)
}
