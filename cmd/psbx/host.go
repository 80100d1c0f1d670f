package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/host"
)

func hosts(c *wire.Config) *cobra.Command {
	cmd := &cobra.Command{Use: "host", Short: "List the machines that carry boxes, and announce that one goes"}
	cmd.AddCommand(hostList(c), hostReclaim(c))
	return cmd
}

func hostList(c *wire.Config) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List every host that ever joined", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := wire.ReadStores(*c)
			if err != nil {
				return err
			}
			defer s.Close()
			rows, err := wire.NewOperator(s).Hosts(cmd.Context())
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tSTATE\tSINCE\tBOXES\tSPARES\tDRIVER\tWHY")
			for _, r := range rows {
				why := r.Why
				if r.Phase == host.Leaving {
					why = "reclaimed at " + r.Deadline.Format(time.RFC3339) + ": " + why
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", r.ID, r.Phase, r.Since.Format(time.RFC3339), r.Boxes, r.Spares, r.Driver, why)
			}
			return w.Flush()
		},
	}
}

func hostReclaim(c *wire.Config) *cobra.Command {
	var id, reason string
	var in time.Duration
	cmd := &cobra.Command{
		Use: "reclaim", Short: "Announce that a host is about to be taken away", Args: cobra.NoArgs,
		Long: `Announce that a host is about to be taken away. Nothing new is placed on it from now on. Its boxes run
on until shortly before, so that agents can fetch their work; then they are interrupted, and say why.
When the service is started on the host after that, the host takes boxes again.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			name := host.ID(id)
			if id == "" {
				var err error
				if name, err = c.HostName(); err != nil {
					return err
				}
			}
			s, err := wire.OpenStores(*c)
			if err != nil {
				return err
			}
			defer s.Close()
			st, err := wire.NewOperator(s).Reclaim(cmd.Context(), name, in, reason)
			if err != nil {
				return err
			}
			if st.Phase != host.Leaving {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "Host %s is %s since %s already: %s.\n", name, st.Phase, st.Since.Format(time.RFC3339), st.Why)
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Host %s takes no new boxes. Those on it end at %s (%s).\n", name, st.Deadline.Format(time.RFC3339), st.Why)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&id, "host", "", "id of the host (default: the one of this data directory)")
	f.DurationVar(&in, "in", 2*time.Minute, "how long the host still has")
	f.StringVar(&reason, "reason", "announced by an operator", "told to agents whose boxes end")
	return cmd
}
