package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"parallelsandbox/cmd/internal/wire"
)

func clickhouseFlag(f *pflag.FlagSet, c *wire.Config) {
	f.StringVar(&c.ClickHouse, "clickhouse", "", "DSN of a ClickHouse database that keeps the usage of many tenants; empty keeps it in views.db")
}

func usage(c *wire.Config) *cobra.Command {
	cmd := &cobra.Command{Use: "usage", Short: "Look after the usage that is kept in ClickHouse"}
	rebuild := &cobra.Command{
		Use: "rebuild", Short: "Build the usage in ClickHouse again from the first event of the ledger", Args: cobra.NoArgs,
		Long: "Build the usage in ClickHouse again from the first event of the ledger, beside what is there, and then put it in its place.\n" +
			"Services may run meanwhile, and answer from the old rows until then. One that was interrupted goes on where it stopped.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := wire.RebuildUsage(cmd.Context(), *c); err != nil {
				return fmt.Errorf("usage rebuild: %w", err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), "usage rebuild: ok")
			return nil
		},
	}
	clickhouseFlag(rebuild.Flags(), c)
	cmd.AddCommand(rebuild)
	return cmd
}
