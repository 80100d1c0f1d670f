package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/ledger"
)

func ledgers(c *wire.Config) *cobra.Command {
	cmd := &cobra.Command{Use: "ledger", Short: "Look at the ledger: every event there ever was"}
	cmd.AddCommand(ledgerShow(c), ledgerVerify(c), ledgerExport(c), ledgerReplay(c), ledgerAudit(c), ledgerRerate(c), ledgerUsage(c))
	return cmd
}

func ledgerShow(c *wire.Config) *cobra.Command {
	var stream string
	var after uint64
	var limit int
	cmd := &cobra.Command{
		Use: "show", Short: "Print events, oldest first", Args: cobra.NoArgs,
		Example: "  psbx ledger show --stream box-k3v… \n  psbx ledger show --after 120 --limit 20",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := wire.ReadStores(*c)
			if err != nil {
				return err
			}
			defer s.Close()
			shown := 0
			for r, err := range s.Ledger.Tail(cmd.Context(), ledger.Position(after)) {
				if err != nil {
					return err
				}
				if stream != "" && string(r.Stream) != stream {
					continue
				}
				if shown++; limit > 0 && shown > limit {
					break
				}
				printEvent(cmd.OutOrStdout(), r)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&stream, "stream", "", "only this stream, such as box-<id> or tenant-<id>")
	cmd.Flags().Uint64Var(&after, "after", 0, "begin after this position")
	cmd.Flags().IntVar(&limit, "limit", 0, "stop after so many events; 0 shows all")
	return cmd
}

// printEvent shows an event on one line: where, when, what, who, and the facts.
func printEvent(w io.Writer, r ledger.Record) {
	fmt.Fprintf(w, "%6d  %s@%d  %s  %-20s  %s  %s\n", r.Position, r.Stream, r.Revision, r.At.UTC().Format(time.RFC3339Nano), r.Type, actor(r.Meta.Actor), r.Data)
}

func actor(a ledger.Actor) string {
	switch {
	case a.System != "":
		return a.System
	case a.Person != "":
		return a.Person
	case a.Client != "":
		return a.Client
	case a.Key != "":
		return "key/" + a.Key
	}
	return "-"
}

func ledgerVerify(c *wire.Config) *cobra.Command {
	var noted []string
	cmd := &cobra.Command{
		Use: "verify", Short: "Check that the ledger is whole, unchanged, and readable by this program", Args: cobra.NoArgs,
		Long: "Check that the ledger is whole, unchanged, and readable by this program. It ends with a mark: kept elsewhere and\n" +
			"given back with --mark, it proves later that nothing before it was changed or cut off.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			marks, err := readMarks(noted)
			if err != nil {
				return err
			}
			s, err := wire.ReadStores(*c)
			if err != nil {
				return err
			}
			defer s.Close()
			return verify(cmd, s, marks)
		},
	}
	cmd.Flags().StringSliceVar(&noted, "mark", nil, "a mark of an earlier verification, position:digest; repeatable")
	return cmd
}

func readMarks(noted []string) (marks []sqlite.Mark, err error) {
	for _, text := range noted {
		position, digest, _ := strings.Cut(text, ":")
		n, err := strconv.ParseUint(position, 10, 64)
		if err != nil || digest == "" {
			return nil, fmt.Errorf("mark %q is not position:digest as an earlier verification printed it", text)
		}
		marks = append(marks, sqlite.Mark{Position: ledger.Position(n), Digest: digest})
	}
	return marks, nil
}

// verify checks the file, and then that today's code can read and fold every event.
func verify(cmd *cobra.Command, s *wire.Stores, marks []sqlite.Mark) error {
	report, err := s.Ledger.Verify(cmd.Context(), marks...)
	if err != nil {
		return fmt.Errorf("ledger verify: %w", err)
	}
	if err := s.Foldable(cmd.Context()); err != nil {
		return fmt.Errorf("ledger verify: %w", err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%d events on %d streams\nmark %d:%s\nledger verify: ok\n", report.Events, report.Streams, report.Head.Position, report.Head.Digest)
	return nil
}

func ledgerExport(c *wire.Config) *cobra.Command {
	return &cobra.Command{
		Use: "export", Short: "Write every event as one line of JSON, with a checksum at the end", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := wire.ReadStores(*c)
			if err != nil {
				return err
			}
			defer s.Close()
			return export(cmd, s)
		},
	}
}

// exported is one line of an export.
type exported struct {
	Position ledger.Position `json:"position"`
	Stream   ledger.Stream   `json:"stream"`
	Revision ledger.Revision `json:"revision"`
	ID       string          `json:"id"`
	Type     string          `json:"type"`
	Version  int             `json:"version"`
	At       time.Time       `json:"at"`
	Meta     ledger.Meta     `json:"meta"`
	Data     json.RawMessage `json:"data"`
}

func export(cmd *cobra.Command, s *wire.Stores) error {
	sum := sha256.New()
	out := bufio.NewWriter(cmd.OutOrStdout())
	enc := json.NewEncoder(io.MultiWriter(out, sum))
	events := 0
	for r, err := range s.Ledger.Tail(cmd.Context(), 0) {
		if err != nil {
			return err
		}
		line := exported{r.Position, r.Stream, r.Revision, r.ID, r.Type, r.Version, r.At, r.Meta, r.Data}
		if err := enc.Encode(line); err != nil {
			return err
		}
		events++
	}
	fmt.Fprintf(out, "{\"events\":%d,\"sha256\":%q}\n", events, hex.EncodeToString(sum.Sum(nil)))
	return out.Flush()
}
