package main

import (
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"parallelsandbox/cmd/internal/wire"
)

// root builds the command line. A flag wins over its environment variable (PSBX_ and
// the flag's name in capitals, dashes as _), which wins over the default.
func root() *cobra.Command {
	c := wire.Defaults()
	c.Version = version()
	cmd := &cobra.Command{
		Use: "psbx", Short: "Isolated Linux machines for coding agents, over MCP",
		SilenceUsage: true, SilenceErrors: true, Version: version(),
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnvironment(cmd.Flags()); err != nil {
				return err
			}
			c.Log = logger(cmd)
			return nil
		},
	}
	f := cmd.PersistentFlags()
	f.StringVar(&c.Data, "data", c.Data, "directory of the ledger and everything else that is kept")
	f.StringVar(&c.Images, "images", "", "directory of the image cache (default <data>/images)")
	f.String("log-format", "auto", "text, json, or auto: text on a terminal")
	f.String("log-level", "info", "debug, info, warn or error")
	cmd.AddCommand(serve(&c), showcase(&c), doctor(&c), key(&c), images(&c), boxes(&c), hosts(&c), ledgers(&c), credits(&c), prices(&c), usage(&c), benchmarks(&c), signin(&c))
	return cmd
}

func fromEnvironment(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		name := "PSBX_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, set := os.LookupEnv(name)
		if f.Changed || !set || err != nil {
			return
		}
		if bad := flags.Set(f.Name, value); bad != nil {
			err = fmt.Errorf("%s: %w", name, bad)
		}
	})
	return err
}

func logger(cmd *cobra.Command) *slog.Logger {
	level := slog.LevelInfo
	text, _ := cmd.Flags().GetString("log-level")
	if err := level.UnmarshalText([]byte(text)); err != nil {
		level = slog.LevelInfo
	}
	opts := &slog.HandlerOptions{Level: level}
	format, _ := cmd.Flags().GetString("log-format")
	if format == "json" || (format != "text" && !terminal(os.Stderr)) {
		return slog.New(slog.NewJSONHandler(os.Stderr, opts))
	}
	return slog.New(slog.NewTextHandler(os.Stderr, opts))
}

func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// version is the tag or commit the program was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && (v == "" || v == "(devel)") {
			v = s.Value[:min(12, len(s.Value))]
		}
	}
	return v
}
