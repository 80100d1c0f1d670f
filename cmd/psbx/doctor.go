package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"parallelsandbox/cmd/internal/wire"
)

func doctor(c *wire.Config) *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Say what this machine lacks to run boxes, with the command that mends it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, missing := cmd.OutOrStdout(), 0
			for _, f := range c.Examine(cmd.Context()) {
				if f.OK {
					fmt.Fprintf(out, "ok       %-14s %s\n", f.What, f.Detail)
					continue
				}
				missing++
				fmt.Fprintf(out, "missing  %-14s %s\n         mend it: %s\n", f.What, f.Detail, f.Mend)
			}
			if missing > 0 {
				return fmt.Errorf("%d things are missing", missing)
			}
			fmt.Fprintf(out, "\nBoxes will run with the driver %s.\n", c.Driver)
			return nil
		},
	}
	machineFlags(cmd.Flags(), c)
	return cmd
}
