package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"parallelsandbox/adapters/app"
	"parallelsandbox/cmd/internal/wire"
)

func serve(c *wire.Config) *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve agents on this machine", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.ErrOrStderr()
			if !cmd.Flags().Changed("image") {
				c.Image = "desktop" // a box has a screen, unless somebody wants a smaller one
			}
			if c.Driver == "gvisor" {
				if _, err := c.EnsureImage(cmd.Context(), c.Image, out); err != nil {
					return err
				}
			}
			run, err := wire.Start(cmd.Context(), *c)
			if err != nil {
				return err
			}
			welcome(out, run)
			if err := enter(out, run, c); err != nil {
				return err
			}
			<-cmd.Context().Done()
			fmt.Fprintln(out, "Stopping. Boxes run on; the next start finds them.")
			return run.Close()
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Listen, "listen", c.Listen, "address to listen on")
	f.StringVar(&c.Domain, "domain", "", "public domain, behind a proxy that ends TLS; empty for this machine alone")
	machineFlags(f, c)
	f.StringVar(&c.ReclaimNotice, "reclaim-notice", "", "where the cloud announces that it takes this machine back: a file that appears, or a URL")
	stripeFlags(f, c)
	githubFlags(f, c)
	clickhouseFlag(f, c)
	f.DurationVar(&c.Keepalive, "keepalive", c.Keepalive, "longest silence of an answer that takes its time")
	f.DurationVar(&c.StartWithin, "start-within", c.StartWithin, "a box that is not ready by then is given up")
	return cmd
}

// stripeFlags are how plans and credits are paid for. Keys are better given in the environment:
// other users of the machine see a command line.
func stripeFlags(f *pflag.FlagSet, c *wire.Config) {
	f.StringVar(&c.Stripe.Key, "stripe-key", "", "secret key of Stripe, sk_test_… or sk_live_…; better as PSBX_STRIPE_KEY")
	f.StringVar(&c.Stripe.WebhookSecret, "stripe-webhook-secret", "", "signing secret of the webhook endpoint, whsec_…; better as PSBX_STRIPE_WEBHOOK_SECRET")
	f.StringSliceVar(&c.Stripe.Pro, "stripe-price-pro", nil, "price of Stripe that is the pro plan; after it, others that were")
	f.StringSliceVar(&c.Stripe.Max, "stripe-price-max", nil, "price of Stripe that is the max plan; after it, others that were")
	f.StringVar(&c.Stripe.URL, "stripe-url", "", "another server in the place of Stripe, for tests")
}

// githubFlags are how people sign in who do not run the machine.
func githubFlags(f *pflag.FlagSet, c *wire.Config) {
	f.StringVar(&c.GitHub.ClientID, "github-client-id", "", "client id of an OAuth app of GitHub; people sign in with it, each to a tenant of their own")
	f.StringVar(&c.GitHub.ClientSecret, "github-client-secret", "", "its client secret; better as PSBX_GITHUB_CLIENT_SECRET")
	f.StringSliceVar(&c.GitHub.Allow, "github-allow", nil, "logins that may sign in; everybody without it")
	f.StringVar(&c.GitHub.URL, "github-url", "", "another server in the place of github.com")
	f.StringVar(&c.GitHub.API, "github-api-url", "", "and in the place of api.github.com")
}

// enter prints a link for whoever runs the machine, where there is no other way in.
func enter(w io.Writer, run *wire.Running, c *wire.Config) error {
	if c.GitHub.ClientID != "" {
		return nil
	}
	link, err := run.SignIn("operator")
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "Open the app within %d minutes with this link, which works once; psbx signin prints another:\n\n  %s\n\n", int(app.CodeLife.Minutes()), link)
	return nil
}

// welcome says where the doors are and, once, what to paste into an agent.
func welcome(w io.Writer, run *wire.Running) {
	fmt.Fprintf(w, "\nParallelSandbox serves at %s\n", run.URL)
	if run.First.Secret == "" {
		fmt.Fprintf(w, "Agents connect to %s with the header Authorization: Bearer psbx_…\npsbx key new makes another key.\n\n", run.MCP)
		return
	}
	fmt.Fprintf(w, `A first tenant and its API key were made. The key is shown only now:

  %s

Paste this into a terminal to connect Claude Code:

  claude mcp add parallelsandbox -e PARALLELSANDBOX_API_KEY=%s -e PARALLELSANDBOX_MCP_URL=%s -- npx -y parallelsandbox-mcp

Any other MCP client: run npx -y parallelsandbox-mcp with the same two variables, or connect straight to
%s with the header Authorization: Bearer <key>.

`, run.First.Secret, run.First.Secret, run.MCP, run.MCP)
}
