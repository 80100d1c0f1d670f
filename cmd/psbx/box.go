package main

import (
	"context"
	"encoding/json"
	"errors"
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
	cmd := &cobra.Command{Use: "box", Short: "Audit one box from the ledger, or put it to rest"}
	cmd.AddCommand(boxHistory(c), boxAt(c), boxCustody(c), boxFreeze(c))
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

func boxFreeze(c *wire.Config) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "freeze <id>", Short: "Freeze a box now instead of when it has rested long enough", Args: cobra.ExactArgs(1),
		Long: `Freeze a box now instead of when it has rested long enough: its memory goes to disk and it costs nothing
until the next call wakes it. The service that runs the box does it; a box that is being called is left alone.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := wire.ReadStores(*c) // makes no directory, should its name be misspelt
			if err != nil {
				return err
			}
			r.Close()
			s, err := wire.OpenStores(*c)
			if err != nil {
				return err
			}
			defer s.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), wait)
			defer cancel()
			said, err := freezeBox(ctx, s, box.ID(args[0]))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), said)
			return err
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 2*time.Minute, "how long to wait for the service to do it")
	return cmd
}

// freezeBox asks for a box to be frozen, waits for what comes of it, and says that.
func freezeBox(ctx context.Context, s *wire.Stores, id box.ID) (string, error) {
	now := func() time.Time { return time.Now().UTC() }
	out, err := s.Boxes.Execute(ctx, box.StreamOf(id), box.Freeze{At: now()}, control.By("operator", now, wire.NewID))
	switch {
	case err != nil:
		return "", err
	case out.State.Phase == box.Suspended:
		return fmt.Sprintf("Box %s is frozen already.", id), nil
	case out.State.Phase == box.Running:
		return "", fmt.Errorf("box %s is in use: a command runs in it", id)
	case out.State.Phase != box.Suspending:
		return "", fmt.Errorf("box %s cannot be frozen: it is %s", id, out.State.Phase)
	}
	for at := out.Revision; ; {
		head, err := s.Ledger.Head(ctx)
		if err != nil {
			return "", err
		}
		for r, err := range s.Ledger.Read(ctx, box.StreamOf(id), at) {
			if err != nil {
				return "", err
			}
			at = r.Revision
			if said, over, err := freezeOutcome(s, r); over || err != nil {
				return said, err
			}
		}
		if err := s.Ledger.Watch(ctx, head); errors.Is(err, context.DeadlineExceeded) {
			return "", fmt.Errorf("box %s is told to freeze, and nothing has done it yet; does its service run?", id)
		} else if err != nil {
			return "", err
		}
	}
}

// freezeOutcome reads what an event says about a freeze that was asked for.
func freezeOutcome(s *wire.Stores, r ledger.Record) (said string, over bool, err error) {
	v, err := s.Codec.Decode(r.Entry)
	if err != nil {
		return "", true, err
	}
	id := r.Stream[len(box.StreamOf("")):]
	switch e := v.(type) {
	case box.Frozen:
		return fmt.Sprintf("Box %s is frozen; it took %d ms.", id, e.TookMs), true, nil
	case box.FreezeFailed:
		return "", true, fmt.Errorf("box %s runs on: %s", id, e.Reason)
	case box.Thawing:
		return "", true, fmt.Errorf("box %s runs on: a call came meanwhile", id)
	case box.Stopping:
		return "", true, fmt.Errorf("box %s ends: %s", id, e.Reason)
	case box.Interrupted:
		return "", true, fmt.Errorf("box %s ends: %s", id, e.Reason)
	}
	return "", false, nil
}
