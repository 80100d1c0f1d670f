package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/custody"
)

func boxCustody(c *wire.Config) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "custody <id>", Short: "Print who held mouse and keyboard of a box, and when", Args: cobra.ExactArgs(1),
		Long: `Print who held mouse and keyboard of a box: for every takeover who asked, who came, from which event to
which, what was refused meanwhile, what was said at the end, and where in a recording it lies.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := wire.ReadStores(*c)
			if err != nil {
				return err
			}
			defer s.Close()
			id := box.ID(args[0])
			if _, _, err := control.FoldBox(cmd.Context(), s.Boxes, id, control.Moment{}); err != nil {
				return fmt.Errorf("the ledger knows no box %s", id)
			}
			records, err := control.CustodyOf(cmd.Context(), s.Boxes, id)
			if err != nil {
				return err
			}
			if asJSON {
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetIndent("", "  ")
				return out.Encode(records)
			}
			printCustody(cmd.OutOrStdout(), records)
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return cmd
}

func printCustody(w io.Writer, records []custody.Record) {
	if len(records) == 0 {
		fmt.Fprintln(w, "nobody was ever at its screen")
	}
	for _, r := range records {
		fmt.Fprintf(w, "takeover %s, events %s, wanted by the %s at %s\n", r.Takeover, revisions(uint64(r.From), uint64(r.To)), r.By, stamp(r.RequestedAt))
		if r.Note != "" {
			fmt.Fprintf(w, "  note     %s\n", r.Note)
		}
		for _, t := range r.Turns {
			until := "now"
			if t.Until != nil {
				until = stamp(*t.Until)
			}
			fmt.Fprintf(w, "  held     %s to %s, events %s, by %s\n", stamp(t.Since), until, revisions(uint64(t.From), uint64(t.To)), t.Person)
		}
		for _, x := range r.Refused {
			fmt.Fprintf(w, "  refused  %s, event %d: %s\n", stamp(x.At), x.Revision, x.Cmd)
		}
		for _, f := range r.Filmed {
			fmt.Fprintf(w, "  filmed   %s\n", filmed(f))
		}
		fmt.Fprintf(w, "  ended    %s\n", outcome(r))
	}
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func revisions(from, to uint64) string {
	if to == 0 {
		return fmt.Sprintf("%d on", from)
	}
	return fmt.Sprintf("%d to %d", from, to)
}

func filmed(f custody.Span) string {
	text := fmt.Sprintf("in recording %s from second %.1f", f.Recording, f.From)
	if f.To != nil {
		text += fmt.Sprintf(" to %.1f", *f.To)
	}
	if f.Lost {
		text += ", which is lost"
	}
	return text
}

func outcome(r custody.Record) string {
	if r.EndedAt == nil {
		return "not yet"
	}
	text := stamp(*r.EndedAt) + ", " + r.Outcome
	if r.Person != "" {
		text += " by " + r.Person
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	if r.Message != "" {
		text += ": " + r.Message
	}
	if (r.Outcome == "returned" || r.Outcome == "declined") && r.By == box.Agent && !r.Heard {
		text += " (the agent has not heard it yet)"
	}
	return text
}
