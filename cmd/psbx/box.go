package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/ledger"
)

func boxes(c *wire.Config) *cobra.Command {
	cmd := &cobra.Command{Use: "box", Short: "Audit one box from the ledger"}
	cmd.AddCommand(boxHistory(c), boxAt(c))
	return cmd
}

func boxHistory(c *wire.Config) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "history <id>", Short: "Print everything that happened to a box", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := wire.ReadStores(*c)
			if err != nil {
				return err
			}
			defer s.Close()
			n := 0
			for r, err := range s.Ledger.Read(cmd.Context(), box.StreamOf(box.ID(args[0])), 0) {
				if err != nil {
					return err
				}
				n++
				if !asJSON {
					printEvent(cmd.OutOrStdout(), r)
					continue
				}
				line := exported{r.Position, r.Stream, r.Revision, r.ID, r.Type, r.Version, r.At, r.Meta, r.Data}
				if err := json.NewEncoder(cmd.OutOrStdout()).Encode(line); err != nil {
					return err
				}
			}
			if n == 0 {
				return fmt.Errorf("the ledger knows no box %s", args[0])
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	return cmd
}

func boxAt(c *wire.Config) *cobra.Command {
	return &cobra.Command{
		Use: "at <id> <revision or time>", Short: "Print the state of a box as it was at a moment", Args: cobra.ExactArgs(2),
		Example: "  psbx box at k3v… 7\n  psbx box at k3v… 2026-11-30T09:00:00Z",
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := moment(args[1])
			if err != nil {
				return err
			}
			s, err := wire.ReadStores(*c)
			if err != nil {
				return err
			}
			defer s.Close()
			st, rev, err := control.FoldBox(cmd.Context(), s.Boxes, box.ID(args[0]), m)
			if err != nil {
				return err
			}
			out := json.NewEncoder(cmd.OutOrStdout())
			out.SetIndent("", "  ")
			return out.Encode(struct {
				Revision ledger.Revision
				box.State
			}{rev, st})
		},
	}
}

// moment reads a revision, or a time in RFC 3339.
func moment(text string) (control.Moment, error) {
	if n, err := strconv.ParseUint(text, 10, 64); err == nil && n > 0 {
		return control.Moment{Revision: ledger.Revision(n)}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return control.Moment{}, fmt.Errorf("%q is neither a revision such as 7 nor a time such as 2026-11-30T09:00:00Z", text)
	}
	return control.Moment{Time: at}, nil
}
