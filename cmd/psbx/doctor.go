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
			out := cmd.OutOrStdout()
			problems := c.Examine(cmd.Context())
			for _, p := range problems {
				fmt.Fprintf(out, "missing: %s\n  mend it: %s\n", p.What, p.Mend)
			}
			switch len(problems) {
			case 0:
				fmt.Fprintf(out, "Nothing is missing. Boxes will run with the driver %s.\n", c.Driver)
				return nil
			case 1:
				return fmt.Errorf("1 thing is missing")
			}
			return fmt.Errorf("%d things are missing", len(problems))
		},
	}
	machineFlags(cmd.Flags(), c)
	return cmd
}
