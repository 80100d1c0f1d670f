package main

import (
	"fmt"
	"os/user"

	"github.com/spf13/cobra"

	"parallelsandbox/adapters/app"
	"parallelsandbox/cmd/internal/wire"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/tenant"
)

// signin prints a link for whoever may read the data directory. A service need not run
// while it is made, only when it is opened.
func signin(c *wire.Config) *cobra.Command {
	var id, person string
	cmd := &cobra.Command{
		Use: "signin", Short: "Print a link that signs in to the app, once", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := wire.ReadStores(*c)
			if err != nil {
				return err
			}
			defer s.Close()
			st, _, err := s.Tenants.Load(cmd.Context(), tenant.StreamOf(tenant.ID(id)))
			if err != nil {
				return err
			}
			if st.ID == "" {
				return fault.New(fault.NotFound, "there is no tenant %s; psbx key new --tenant %s registers it", id, id)
			}
			link, err := c.SignIn(st.ID, person)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), link)
			fmt.Fprintf(cmd.ErrOrStderr(), "The link works once, within %d minutes.\n", int(app.CodeLife.Minutes()))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&id, "tenant", string(wire.FirstTenant), "the tenant to sign in to")
	f.StringVar(&person, "person", whoAmI(), "how events name the person")
	f.StringVar(&c.Listen, "listen", c.Listen, "address the service listens on")
	f.StringVar(&c.Domain, "domain", "", "public domain of the service; empty for this machine alone")
	return cmd
}

func whoAmI() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "operator"
}
