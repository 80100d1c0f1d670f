package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"parallelsandbox/cmd/internal/agent"
	"parallelsandbox/cmd/internal/demo"
	"parallelsandbox/cmd/internal/wire"
)

func showcase(c *wire.Config) *cobra.Command {
	var repo, npm string
	cmd := &cobra.Command{
		Use: "demo", Short: "Show the main job in real boxes, on a data directory that goes afterwards", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return fmt.Errorf("boxes need mounts and network namespaces: run this as root")
			}
			adapters, err := adapters(npm)
			if err != nil {
				return err
			}
			conf := *c
			conf.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			d := demo.Demo{Config: conf, Repo: repo, Adapters: adapters, Out: cmd.OutOrStdout()}
			return d.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&repo, "repo", ".", "a directory in a clone of this repository, to sync from")
	f.StringVar(&npm, "npm", os.Getenv("PSBX_TEST_NPM"), "the node_modules directory that holds the public adapter")
	machineFlags(f, c)
	return cmd
}

// adapters are the public one of npm and ours.
func adapters(npm string) ([]agent.Adapter, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, fmt.Errorf("node is missing: install Node 20 or newer")
	}
	public, err := filepath.Abs(filepath.Join(npm, "parallelsandbox-mcp/index.mjs"))
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(public); err != nil {
		return nil, fmt.Errorf("the public adapter is not in %s; make demo installs it", filepath.Dir(public))
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ours := filepath.Join(filepath.Dir(self), "parallelsandbox-mcp")
	return []agent.Adapter{
		{Name: "the public npm package parallelsandbox-mcp", Command: node, Args: []string{public}},
		{Name: "our own stdio adapter", Command: ours},
	}, nil
}
