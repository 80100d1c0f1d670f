package wire

import (
	"errors"
	"fmt"
	"net/url"

	"parallelsandbox/adapters/app"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/tenant"
)

// GitHubConfig is how people sign in who do not run the machine. Without a ClientID none can.
type GitHubConfig struct {
	ClientID     string
	ClientSecret string
	Allow        []string // logins that may; empty for everybody
	URL, API     string   // empty for GitHub itself
}

// codes are what whoever runs the machine signs in with.
func (c Config) codes() *app.Codes { return &app.Codes{Dir: c.path("signin"), Now: now} }

// SignIn makes a link that signs a person in to the app, once.
func (c Config) SignIn(of tenant.ID, person string) (link string, err error) {
	code, err := c.codes().New(of, person)
	if err != nil {
		return "", err
	}
	return c.addresses().app + "/signin?" + url.Values{"code": {code}}.Encode(), nil
}

// SignIn makes a link for a service that serves, at the address it was given.
func (r *Running) SignIn(person string) (string, error) { return r.config.SignIn(FirstTenant, person) }

// app is the pages for people.
func (core *Core) app(c Config, bills *control.Billing, screen app.Screen) (*app.App, error) {
	if (c.GitHub.ClientID == "") != (c.GitHub.ClientSecret == "") {
		return nil, errors.New("sign-in with GitHub needs both github-client-id and github-client-secret")
	}
	key, err := keep(c.path("cookies.key"), func() string { return Token(320) })
	if err != nil {
		return nil, fmt.Errorf("key of cookies: %w", err)
	}
	at := c.addresses()
	return app.New(app.Config{
		Control: core.Use, Billing: bills, Screen: screen, URL: at.app, API: at.api, MCPURL: at.mcp, Key: []byte(key), Codes: c.codes(),
		GitHub: app.GitHub{ClientID: c.GitHub.ClientID, ClientSecret: c.GitHub.ClientSecret, Allow: c.GitHub.Allow, URL: c.GitHub.URL, API: c.GitHub.API},
		Log:    logger(c.Log, "app"),
	})
}
