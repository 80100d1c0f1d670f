package stdio

import (
	"io"
	"testing"
)

func TestAPIAddressFollowsTheMCPAddress(t *testing.T) {
	for _, c := range []struct{ mcp, api, want string }{
		{"", "", "https://api.parallelsandbox.com"},
		{"http://localhost:7070/mcp", "", "http://localhost:7070"},
		{"https://mcp.dev.parallelsandbox.com/mcp", "", "https://api.dev.parallelsandbox.com"},
		{"https://boxes.example:8443/psbx/mcp?x=1", "", "https://boxes.example:8443"},
		{"http://localhost:7070/mcp", "http://other:1/base/", "http://other:1/base"},
		{"", "http://other:1", "http://other:1"},
	} {
		env := map[string]string{"PARALLELSANDBOX_API_KEY": " psbx_k\n", "PARALLELSANDBOX_MCP_URL": c.mcp, "PARALLELSANDBOX_API_URL": c.api}
		cfg, err := ParseConfig(nil, func(name string) string { return env[name] }, io.Discard, "")
		if err != nil || cfg.APIURL != c.want || cfg.Key != "psbx_k" {
			t.Errorf("%q, %q: %q %q %v, want %q", c.mcp, c.api, cfg.APIURL, cfg.Key, err, c.want)
		}
	}
}

func TestFlagsGoBeforeTheEnvironment(t *testing.T) {
	cfg, err := ParseConfig([]string{"--api-key", "psbx_flag", "--mcp-url=http://localhost:1/mcp", "--agent", "a"},
		func(string) string { return "psbx_env" }, io.Discard, "9")
	if err == nil {
		t.Fatal("the environment's API URL is none, yet it was taken")
	}
	cfg, err = ParseConfig([]string{"--api-key", "psbx_flag", "--mcp-url=http://localhost:1/mcp", "--agent", "a"},
		func(string) string { return "" }, io.Discard, "9")
	if err != nil || cfg.Key != "psbx_flag" || cfg.MCPURL != "http://localhost:1/mcp" || cfg.Agent != "a" || cfg.Version != "9" {
		t.Errorf("%+v %v", cfg, err)
	}
}

func TestOnlyAKeyOverANetworkInTheClearIsWarnedOf(t *testing.T) {
	for url, want := range map[string]bool{
		"http://localhost:7070/mcp": false, "http://127.0.0.1/mcp": false, "http://[::1]:1/mcp": false, "http://mcp.localhost/mcp": false,
		"https://far.example/mcp": false, "http://far.example/mcp": true, "http://10.0.0.1/mcp": true,
	} {
		if got := (&Config{MCPURL: url}).cleartext(); got != want {
			t.Errorf("%s: %v", url, got)
		}
	}
}
