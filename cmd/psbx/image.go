package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/hypervisor/image"
)

func images(c *wire.Config) *cobra.Command {
	cmd := &cobra.Command{Use: "image", Short: "Build, list and remove the root file systems of boxes"}
	cmd.AddCommand(
		&cobra.Command{
			Use: "ensure [profile]", Short: "Build a profile, unless it is in the cache", Args: cobra.MaximumNArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				profile := c.Image
				if len(args) > 0 {
					profile = args[0]
				}
				_, err := c.EnsureImage(cmd.Context(), profile, cmd.ErrOrStderr())
				return err
			},
		},
		&cobra.Command{
			Use: "list", Short: "List what is in the cache", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				all, err := image.List(c.ImageDir())
				if err != nil {
					return err
				}
				w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
				fmt.Fprintln(w, "DIGEST\tPATH")
				for _, i := range all {
					fmt.Fprintf(w, "%s\t%s\n", i.Digest, i.Path)
				}
				return w.Flush()
			},
		},
		&cobra.Command{
			Use: "remove <digest>", Short: "Remove an image; boxes that run from it would break", Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return image.Remove(c.ImageDir(), args[0]) },
		},
	)
	return cmd
}
