package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/tenant"
)

func key(c *wire.Config) *cobra.Command {
	var id string
	cmd := &cobra.Command{Use: "key", Short: "Issue, list and revoke API keys"}
	cmd.PersistentFlags().StringVar(&id, "tenant", string(wire.FirstTenant), "the tenant the key belongs to")
	with := func(do func(*cobra.Command, *wire.Operator, tenant.ID, []string) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, args []string) error {
			s, err := wire.OpenStores(*c)
			if err != nil {
				return err
			}
			defer s.Close()
			return do(cmd, wire.NewOperator(s), tenant.ID(id), args)
		}
	}
	cmd.AddCommand(keyNew(with), keyList(with), keyRevoke(with))
	return cmd
}

type withOperator func(func(*cobra.Command, *wire.Operator, tenant.ID, []string) error) func(*cobra.Command, []string) error

func keyNew(with withOperator) *cobra.Command {
	var plan string
	cmd := &cobra.Command{
		Use: "new [name]", Short: "Issue a key; a tenant that does not exist yet is registered", Args: cobra.MaximumNArgs(1),
		RunE: with(func(cmd *cobra.Command, o *wire.Operator, id tenant.ID, args []string) error {
			name := "made " + time.Now().UTC().Format(time.DateTime)
			if len(args) > 0 {
				name = args[0]
			}
			k, err := o.NewKey(cmd.Context(), id, tenant.Plan(plan), name)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), k.Secret)
			fmt.Fprintln(cmd.ErrOrStderr(), "This is the only time the key is shown.")
			return nil
		}),
	}
	cmd.Flags().StringVar(&plan, "plan", "", "plan of a new tenant: free, pro or max (default free; max for the first tenant)")
	return cmd
}

func keyList(with withOperator) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List a tenant's keys", Args: cobra.NoArgs,
		RunE: with(func(cmd *cobra.Command, o *wire.Operator, id tenant.ID, _ []string) error {
			keys, err := o.Keys(cmd.Context(), id)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tISSUED\tSTATE\tNAME")
			for _, k := range keys {
				state := "valid"
				if k.Revoked {
					state = "revoked"
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", k.ID, k.IssuedAt.Format(time.RFC3339), state, k.Name)
			}
			return w.Flush()
		}),
	}
}

func keyRevoke(with withOperator) *cobra.Command {
	return &cobra.Command{
		Use: "revoke <id>", Short: "End a key at once", Args: cobra.ExactArgs(1),
		RunE: with(func(cmd *cobra.Command, o *wire.Operator, id tenant.ID, args []string) error {
			return o.RevokeKey(cmd.Context(), id, args[0])
		}),
	}
}
