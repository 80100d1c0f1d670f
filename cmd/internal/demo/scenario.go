package demo

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"parallelsandbox/cmd/internal/agent"
)

// Story is the main job as one agent lives it: the same steps, whichever adapter it uses.
type Story struct {
	Agent  *agent.Agent
	Tree   string // working tree the agent works in; also its adapter's working directory
	Stage  *Staging
	Server string // base URL of the service
	Secret string // value of the secret DEMO_TOKEN
	// Freeze does to a box what happens when nobody calls it for a while.
	Freeze func(ctx context.Context, id string) error

	show *show
	box  agent.Started
}

func (s *Story) play(ctx context.Context) error {
	for _, part := range []func(context.Context) error{s.start, s.sync, s.programs, s.reach, s.rewire, s.rest, s.fetch, s.status, s.stop} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *Story) start(ctx context.Context) error {
	return s.show.step("start a box with two services and a secret", func() (string, error) {
		err := s.Agent.Call(ctx, "sandbox_start", map[string]any{
			"services":        []any{map[string]any{"name": "web", "port": 3000}, map[string]any{"name": "api", "port": 8000}},
			"externalBaseUrl": s.Stage.URL, "secrets": []any{"DEMO_TOKEN"}, "name": "demo", "idleTimeoutMin": 30,
		}, &s.box)
		if err != nil {
			return "", err
		}
		return s.box.ID + " " + s.box.StartedFrom, want(s.box.Status, "ready")
	})
}

func (s *Story) sync(ctx context.Context) error {
	err := s.show.step("sync the git working tree", func() (string, error) {
		var out struct {
			OK        bool `json:"ok"`
			Files     int  `json:"files"`
			SentFiles int  `json:"sentFiles"`
		}
		if err := s.Agent.Call(ctx, "sandbox_sync", map[string]any{"id": s.box.ID, "localPath": ".", "dest": "repo"}, &out); err != nil {
			return "", err
		}
		if !out.OK || out.SentFiles < 50 {
			return "", fmt.Errorf("sent only %d files", out.SentFiles)
		}
		return fmt.Sprintf("%d files", out.SentFiles), nil
	})
	if err != nil {
		return err
	}
	return s.show.step("tracked and new files came along, ignored ones did not", func() (string, error) {
		out, err := s.run(ctx, fmt.Sprintf("cd repo && sha256sum go.mod && cat %s && test ! -e %s && echo no ignored file", untracked, ignored))
		if err != nil {
			return "", err
		}
		mod, err := os.ReadFile(filepath.Join(s.Tree, "go.mod"))
		if err != nil {
			return "", err
		}
		return "", errors.Join(want(out, digest(mod)), want(out, "not committed yet"), want(out, "no ignored file"))
	})
}

func (s *Story) programs(ctx context.Context) error {
	for _, p := range []struct{ service, cmd, says string }{
		{"web", "node repo/cmd/internal/demo/programs/web.js", "web listens on 3000"},
		{"api", "python3 repo/cmd/internal/demo/programs/api.py", "api listens on 8000"},
	} {
		err := s.show.step("run "+p.cmd, func() (string, error) {
			if err := s.wire(ctx, p.service, "box"); err != nil {
				return "", err
			}
			var bg agent.Exec
			if err := s.Agent.Call(ctx, "sandbox_exec", map[string]any{"id": s.box.ID, "cmd": p.cmd, "background": true}, &bg); err != nil {
				return "", err
			}
			out, err := s.run(ctx, fmt.Sprintf("for i in $(seq 100); do grep -q 'listens' .sbx/%s.log && break; sleep 0.1; done; cat .sbx/%s.log", bg.BgID, bg.BgID))
			return bg.BgID, errors.Join(err, want(out, p.says))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// token is how the demo's API shows that it knows the secret, without saying it.
func (s *Story) token() string { return "token " + digest([]byte(s.Secret))[:12] }

func (s *Story) reach(ctx context.Context) error {
	for _, address := range []string{"http://web:3000/", "http://web/"} {
		err := s.show.step("inside the box, "+address+" answers", func() (string, error) {
			out, err := s.run(ctx, "curl -sS --max-time 10 "+address)
			return out, errors.Join(err, want(out, "api says: box version"), want(out, s.token()))
		})
		if err != nil {
			return err
		}
	}
	return s.show.step("outside, the scene URL answers", func() (string, error) {
		out, err := s.scene(ctx, s.box.SceneURL)
		return s.box.SceneURL, errors.Join(err, want(out, "api says: box version"))
	})
}

func (s *Story) rewire(ctx context.Context) error {
	apiScene := strings.Replace(s.box.SceneURL, "://", "://api--", 1)
	// The box's own process holds the port: it has to let go before staging can take it.
	stop := "pkill -f programs/api.p[y]; for i in $(seq 100); do pgrep -f programs/api.p[y] >/dev/null || break; sleep 0.05; done"
	err := s.show.step("wire api to the external server", func() (string, error) {
		if _, err := s.run(ctx, stop); err != nil {
			return "", err
		}
		if err := s.wire(ctx, "api", "external"); err != nil {
			return "", err
		}
		in, err := s.run(ctx, "curl -sS --max-time 10 http://web/")
		if err != nil {
			return "", err
		}
		out, err := s.scene(ctx, apiScene+"/from-outside")
		return in, errors.Join(err, want(in, "api says: staging version"), want(out, "staging version"), want(out, "/from-outside"))
	})
	if err != nil {
		return err
	}
	return s.show.step("and back to the box", func() (string, error) {
		if err := s.wire(ctx, "api", "box"); err != nil {
			return "", err
		}
		var bg agent.Exec
		if err := s.Agent.Call(ctx, "sandbox_exec", map[string]any{"id": s.box.ID, "cmd": "python3 repo/cmd/internal/demo/programs/api.py", "background": true}, &bg); err != nil {
			return "", err
		}
		in, err := s.run(ctx, "for i in $(seq 100); do curl -sS --max-time 10 http://web/ | grep 'box version' && break; sleep 0.1; done")
		return in, errors.Join(err, want(in, "api says: box version"))
	})
}

func (s *Story) fetch(ctx context.Context) error {
	err := s.show.step("fetch a file", func() (string, error) {
		if _, err := s.run(ctx, "echo 'made in the box ☕' > 'report 1.txt'"); err != nil {
			return "", err
		}
		body, name, err := s.get(ctx, "report 1.txt")
		return name, errors.Join(err, want(string(body), "made in the box ☕"), want(name, "report 1.txt"))
	})
	if err != nil {
		return err
	}
	return s.show.step("fetch a directory", func() (string, error) {
		body, name, err := s.get(ctx, "repo/domain/box")
		if err != nil {
			return "", err
		}
		return name, holds(body, "box/event.go", filepath.Join(s.Tree, "domain/box/event.go"))
	})
}

// holds checks that an archive carries a file unchanged.
func holds(archive []byte, name, original string) error {
	expected, err := os.ReadFile(original)
	if err != nil {
		return err
	}
	unzipped, err := gzip.NewReader(strings.NewReader(string(archive)))
	if err != nil {
		return err
	}
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if err != nil {
			return fmt.Errorf("the archive does not hold %s: %w", name, err)
		}
		if h.Name != name {
			continue
		}
		got, err := io.ReadAll(r)
		if err != nil || digest(got) != digest(expected) {
			return fmt.Errorf("%s differs in the archive: %w", name, err)
		}
		return nil
	}
}

// rest has the box frozen. Its programs were started before, and answer after.
func (s *Story) rest(ctx context.Context) error {
	err := s.show.step("nobody calls the box for a while: it freezes", func() (string, error) {
		var out struct {
			State string `json:"state"`
		}
		for end := time.Now().Add(30 * time.Second); out.State != "frozen"; time.Sleep(50 * time.Millisecond) {
			// Like the policy, it asks again when a call came in between.
			if err := s.Freeze(ctx, s.box.ID); err != nil {
				return "", err
			}
			if err := s.Agent.Call(ctx, "sandbox_status", map[string]any{"id": s.box.ID}, &out); err != nil {
				return "", err
			}
			if time.Now().After(end) {
				return "", fmt.Errorf("it is still %s", out.State)
			}
		}
		return out.State, nil
	})
	if err != nil {
		return err
	}
	return s.show.step("the next command wakes it, and its programs go on", func() (string, error) {
		out, err := s.run(ctx, "curl -sS --max-time 10 http://web/")
		return out, errors.Join(err, want(out, "api says: box version"), want(out, s.token()))
	})
}

func (s *Story) status(ctx context.Context) error {
	return s.show.step("ask for the status", func() (string, error) {
		var out struct {
			State  string `json:"state"`
			Health struct {
				OK bool `json:"ok"`
			} `json:"health"`
			Steps []any `json:"steps"`
		}
		if err := s.Agent.Call(ctx, "sandbox_status", map[string]any{"id": s.box.ID}, &out); err != nil {
			return "", err
		}
		if !out.Health.OK || len(out.Steps) < 10 {
			return "", fmt.Errorf("health %v, %d steps", out.Health.OK, len(out.Steps))
		}
		return fmt.Sprintf("%s, %d steps", out.State, len(out.Steps)), want(out.State, "ready")
	})
}

func (s *Story) stop(ctx context.Context) error {
	return s.show.step("stop the box", func() (string, error) {
		if err := s.Agent.Call(ctx, "sandbox_stop", map[string]any{"id": s.box.ID}, nil); err != nil {
			return "", err
		}
		var refused *agent.Refusal
		_, err := s.Agent.Run(ctx, s.box.ID, "true")
		if !errors.As(err, &refused) || refused.Code != "terminated" {
			return "", fmt.Errorf("a command after the stop: %v", err)
		}
		return "", nil
	})
}

func (s *Story) run(ctx context.Context, cmd string) (string, error) {
	e, err := s.Agent.Run(ctx, s.box.ID, cmd)
	if err != nil {
		return "", err
	}
	if e.Code() != 0 {
		return e.Stdout, fmt.Errorf("%s: exit code %d: %s", cmd, e.Code(), e.Stderr)
	}
	return e.Stdout, nil
}

func (s *Story) wire(ctx context.Context, service, mode string) error {
	var out struct {
		Services []struct{ Name, Mode string } `json:"services"`
	}
	if err := s.Agent.Call(ctx, "sandbox_wire", map[string]any{"id": s.box.ID, "service": service, "mode": mode}, &out); err != nil {
		return err
	}
	for _, x := range out.Services {
		if x.Name == service && x.Mode == mode && len(out.Services) == 2 {
			return nil
		}
	}
	return fmt.Errorf("the wiring table is %v", out.Services)
}

// scene asks a scene URL as a browser would. Names under localhost are this machine's.
func (s *Story) scene(ctx context.Context, address string) (string, error) {
	server, err := url.Parse(s.Server)
	if err != nil {
		return "", err
	}
	client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", server.Port()))
		},
	}}
	body, _, err := read(ctx, &client, address)
	return string(body), err
}

func (s *Story) get(ctx context.Context, path string) (body []byte, name string, err error) {
	var out struct {
		URL   string `json:"url"`
		Bytes int    `json:"bytes"`
	}
	if err := s.Agent.Call(ctx, "sandbox_get", map[string]any{"id": s.box.ID, "path": path}, &out); err != nil {
		return nil, "", err
	}
	body, name, err = read(ctx, &http.Client{Timeout: 20 * time.Second}, out.URL)
	if err == nil && len(body) != out.Bytes {
		err = fmt.Errorf("%d bytes came, %d were promised", len(body), out.Bytes)
	}
	return body, name, err
}

func read(ctx context.Context, c *http.Client, address string) (body []byte, disposition string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, "", err
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	if body, err = io.ReadAll(res.Body); err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", address, res.Status, body)
	}
	return body, res.Header.Get("Content-Disposition"), err
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
