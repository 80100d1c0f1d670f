package stdio

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"parallelsandbox/adapters/stdio/upstream"
)

// Version is what --version prints and what the npm packages carry.
const Version = "0.3.0"

const (
	defaultMCPURL = "https://mcp.parallelsandbox.com/mcp"
	defaultAPIURL = "https://api.parallelsandbox.com"
	keyPage       = "https://app.parallelsandbox.com"
)

// Config is what Run needs. The zero value of every field after Agent has a sensible meaning.
type Config struct {
	Key    string // API key; required
	MCPURL string // streamable HTTP endpoint
	APIURL string // REST base, without a slash at its end
	Agent  string // id of the conversation; empty: none is sent

	Version   string            // default: Version
	Dir       string            // what localPath is relative to; default: the working directory
	Transport http.RoundTripper // default: upstream.NewTransport
	LogLevel  slog.Level        // default: info
	Patience  time.Duration     // see upstream.Config
	Greeting  time.Duration     // how long initialize waits for the server; default 5 s
	Grace     time.Duration     // how long calls in flight may take after stdin closed; default 1.5 s: agents send a signal after 2 s
}

var agentID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// ErrDone says that the command line was answered (--help, --version) and there is nothing to run.
var ErrDone = errors.New("answered")

// ParseConfig reads flags, then environment, then defaults. What --help and --version print goes to stdout.
func ParseConfig(args []string, getenv func(string) string, stdout io.Writer, version string) (Config, error) {
	if version == "" {
		version = Version
	}
	flags := flag.NewFlagSet("parallelsandbox-mcp", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	var c Config
	c.Version = version
	flags.StringVar(&c.Key, "api-key", getenv("PARALLELSANDBOX_API_KEY"), "")
	flags.StringVar(&c.MCPURL, "mcp-url", getenv("PARALLELSANDBOX_MCP_URL"), "")
	flags.StringVar(&c.APIURL, "api-url", getenv("PARALLELSANDBOX_API_URL"), "")
	flags.StringVar(&c.Agent, "agent", getenv("PARALLELSANDBOX_AGENT"), "")
	verbose := flags.Bool("verbose", false, "")
	showVersion := flags.Bool("version", false, "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, usage)
		return c, ErrDone
	case err != nil:
		return c, fmt.Errorf("%w; see parallelsandbox-mcp --help", err)
	case flags.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q; see parallelsandbox-mcp --help", flags.Arg(0))
	}
	if *showVersion {
		fmt.Fprintln(stdout, "parallelsandbox-mcp", version)
		return c, ErrDone
	}
	if *verbose {
		c.LogLevel = slog.LevelDebug
	}
	return c, c.settle()
}

// settle checks what was given and fills in what follows from it.
func (c *Config) settle() error {
	c.Key = strings.TrimSpace(c.Key)
	if c.Key == "" {
		return fmt.Errorf("PARALLELSANDBOX_API_KEY is not set: make a key in the app at %s (your own server prints one when it first starts) and set it in the environment of this program", keyPage)
	}
	if strings.ContainsFunc(c.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("PARALLELSANDBOX_API_KEY holds a character that no key has; copy the whole key, without spaces or line breaks")
	}
	given := c.MCPURL != ""
	if !given {
		c.MCPURL = defaultMCPURL
	}
	mcp, err := httpURL("PARALLELSANDBOX_MCP_URL", c.MCPURL)
	if err != nil {
		return err
	}
	switch {
	case c.APIURL != "":
		if _, err := httpURL("PARALLELSANDBOX_API_URL", c.APIURL); err != nil {
			return err
		}
	case given:
		c.APIURL = apiBeside(mcp)
	default:
		c.APIURL = defaultAPIURL
	}
	c.APIURL = strings.TrimRight(c.APIURL, "/")
	c.fillDefaults()
	return nil
}

func (c *Config) fillDefaults() {
	if c.Version == "" {
		c.Version = Version
	}
	if c.Dir == "" {
		c.Dir = "."
	}
	if c.Transport == nil {
		c.Transport = upstream.NewTransport()
	}
	if c.Greeting == 0 {
		c.Greeting = 5 * time.Second
	}
	if c.Grace == 0 {
		c.Grace = 1500 * time.Millisecond
	}
}

func httpURL(name, value string) (*url.URL, error) {
	u, err := url.Parse(value)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("%s is %q, which is not an http or https URL; it should look like %s", name, value, defaultMCPURL)
	}
	if u.User != nil {
		return nil, fmt.Errorf("%s must not carry a user or password; the key goes into PARALLELSANDBOX_API_KEY", name)
	}
	return u, nil
}

// apiBeside derives the REST base from the MCP endpoint: the hosts are mcp.<domain> and api.<domain> in
// production, and one and the same on a single machine.
func apiBeside(mcp *url.URL) string {
	host := mcp.Host
	if domain, ok := strings.CutPrefix(host, "mcp."); ok {
		host = "api." + domain
	}
	return mcp.Scheme + "://" + host
}

// cleartext reports whether the key would cross a network unencrypted.
func (c *Config) cleartext() bool {
	u, err := url.Parse(c.MCPURL)
	if err != nil || u.Scheme != "http" {
		return false
	}
	host := u.Hostname()
	return host != "localhost" && !strings.HasSuffix(host, ".localhost") && !strings.HasPrefix(host, "127.") && host != "::1"
}

// Main is the program: it reads its configuration, runs, and returns the exit code.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, version string) int {
	cfg, err := ParseConfig(args, os.Getenv, stdout, version)
	if errors.Is(err, ErrDone) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "parallelsandbox-mcp:", err)
		return 2
	}
	return Run(ctx, cfg, stdin, stdout, stderr)
}

const usage = `parallelsandbox-mcp connects an agent that speaks MCP over stdio to ParallelSandbox.

It forwards every tool to the server and runs two of them on this machine: sandbox_sync
uploads a directory to a box, sandbox_pull brings a file or directory back.

Usage: PARALLELSANDBOX_API_KEY=psbx_… parallelsandbox-mcp [flags]

Flags, each with the environment variable it takes precedence over:
  --api-key KEY    PARALLELSANDBOX_API_KEY  required; make one at ` + keyPage + `
  --mcp-url URL    PARALLELSANDBOX_MCP_URL  default ` + defaultMCPURL + `
  --api-url URL    PARALLELSANDBOX_API_URL  default: the host of the MCP URL (mcp.<domain> becomes api.<domain>)
  --agent ID       PARALLELSANDBOX_AGENT    id of this conversation, letters, digits, _ and -, at most 64
  --verbose        log more on stderr
  --version        print the version
  --help           print this

Prefer the environment for the key: other users of this machine can see command lines.
`
