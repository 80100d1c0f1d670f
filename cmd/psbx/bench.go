package main

import (
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"parallelsandbox/cmd/internal/bench"
	"parallelsandbox/cmd/internal/wire"
)

func benchmarks(c *wire.Config) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "bench [row...]", Short: "Measure, beside the floors of this machine",
		Long: "Measure rows beside the floors of this machine, on an empty data directory that goes afterwards.\nRows: " + strings.Join(bench.Names(), ", "),
		RunE: func(cmd *cobra.Command, rows []string) (err error) {
			dir, err := os.MkdirTemp("", "psbx-bench-")
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
			conf := *c
			conf.Images, conf.Data = c.ImageDir(), dir
			b := bench.Bench{Config: conf, Log: cmd.ErrOrStderr()}
			measured, err := b.Run(cmd.Context(), rows)
			return errors.Join(err, bench.Print(cmd.OutOrStdout(), measured, asJSON))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line: name, value, unit, floor, ratio, command")
	machineFlags(cmd.Flags(), c)
	return cmd
}
