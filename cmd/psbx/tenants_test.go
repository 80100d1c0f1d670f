package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"parallelsandbox/cmd/internal/agent"
)

// TestTwoTenants holds every tool and every route against another tenant's box, key and
// secret: what comes back is what comes back for something that never was.
func TestTwoTenants(t *testing.T) {
	data := t.TempDir()
	ours := strings.TrimSpace(psbx(t, "key", "new", "ours", "--data", data))
	theirs := strings.TrimSpace(psbx(t, "key", "new", "theirs", "--data", data, "--tenant", "acme"))
	s := serveOn(t, data, ours, "--driver", "fake")
	both := dialTwo(t, s, ours, theirs)
	var b agent.Started
	if err := both[0].Call(t.Context(), "sandbox_start", map[string]any{"services": []any{map[string]any{"name": "web", "port": 3000}}}, &b); err != nil {
		t.Fatal(err)
	}
	if status, body := request(t, s.URL, http.MethodPut, "/v1/secrets/OURS", ours, "a value nobody may see"); status/100 != 2 {
		t.Fatalf("set a secret: %d %s", status, body)
	}
	const never = "aaaaaaaaaaaaaaaaaaaa"
	tries := map[string]map[string]any{
		"sandbox_exec": {"cmd": "true"}, "sandbox_get": {"path": "x"}, "sandbox_wire": {"service": "web", "mode": "box"},
		"sandbox_shot": {}, "sandbox_takeover": {"note": "please"}, "sandbox_status": {}, "sandbox_stop": {},
	}
	about := []string{"sandbox_start", "sandbox_secrets", "sandbox_sync"} // of no box, or refused over HTTP
	tools, err := both[1].Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools {
		if tries[tool] == nil && !slices.Contains(about, tool) {
			t.Errorf("%s is not tried", tool)
		}
	}
	for tool, args := range tries {
		args["id"] = never
		unknown := both[1].Call(t.Context(), tool, args, nil)
		args["id"] = b.ID
		foreign := both[1].Call(t.Context(), tool, args, nil)
		var said *agent.Refusal
		if !errors.As(foreign, &said) || said.Code != "not_found" || foreign.Error() != unknown.Error() {
			t.Errorf("%s: a foreign box says %v, one that never was %v", tool, foreign, unknown)
		}
	}
	for _, r := range []struct{ method, path, body string }{
		{http.MethodGet, "/v1/boxes/%", ""}, {http.MethodGet, "/v1/boxes/%?at=1", ""}, {http.MethodGet, "/v1/boxes/%/wiring", ""},
		{http.MethodGet, "/v1/boxes/%/history", ""}, {http.MethodDelete, "/v1/boxes/%", ""}, {http.MethodPost, "/v1/boxes/%/sync?dest=x", "x"},
		{http.MethodGet, "/v1/boxes/%/screencast", ""}, {http.MethodPost, "/v1/boxes/%/input", `{"actions": [{"type": "key", "key": "a"}]}`},
		{http.MethodPost, "/v1/boxes/%/shots", "{}"}, {http.MethodGet, "/v1/boxes/%/recordings", ""}, {http.MethodGet, "/v1/boxes/%/custody", ""},
	} {
		status, foreign := request(t, s.URL, r.method, strings.Replace(r.path, "%", b.ID, 1), theirs, r.body)
		other, unknown := request(t, s.URL, r.method, strings.Replace(r.path, "%", never, 1), theirs, r.body)
		if status != http.StatusNotFound || status != other || strings.ReplaceAll(foreign, b.ID, never) != unknown {
			t.Errorf("%s %s: a foreign box says %d %s, one that never was %d %s", r.method, r.path, status, foreign, other, unknown)
		}
	}
	takeover := askedFor(t, both[0], b.ID)
	for _, end := range []string{"join", "return"} {
		status, foreign := request(t, s.URL, http.MethodPost, "/v1/takeovers/"+takeover+"/"+end, theirs, "{}")
		if _, unknown := request(t, s.URL, http.MethodPost, "/v1/takeovers/"+never+"/"+end, theirs, "{}"); status != http.StatusNotFound || foreign != unknown {
			t.Errorf("%s: a foreign takeover says %d %s, one that never was %s", end, status, foreign, unknown)
		}
	}
	for _, path := range []string{"/v1/boxes", "/v1/secrets", "/v1/keys", "/v1/takeovers"} {
		if _, body := request(t, s.URL, http.MethodGet, path, theirs, ""); strings.Contains(body, b.ID) || strings.Contains(body, "OURS") || strings.Contains(body, `"ours"`) {
			t.Errorf("%s shows what belongs to another tenant: %s", path, body)
		}
	}
	var secrets map[string]any
	if err := both[1].Call(t.Context(), "sandbox_secrets", map[string]any{}, &secrets); err != nil || len(secrets["secrets"].([]any)) > 0 {
		t.Errorf("secrets of the other tenant: %v, %v", secrets, err)
	}
	if e, err := both[0].Run(t.Context(), b.ID, "echo still here"); err != nil || e.Stdout != "still here\n" {
		t.Errorf("the box was harmed: %v %v", e, err)
	}
}

// askedFor has an agent ask for a person and returns the takeover that waits for one.
func askedFor(t *testing.T, a *agent.Agent, id string) (takeover string) {
	t.Helper()
	go a.Call(context.WithoutCancel(t.Context()), "sandbox_takeover", map[string]any{"id": id, "note": "please"}, nil) // nobody comes
	eventually(t, 10*time.Second, "somebody is asked for", func() bool {
		takeover = statusOf(t, a, id).Takeover.Takeover
		return takeover != ""
	})
	return takeover
}

// request makes one REST request and returns the answer without its request id.
func request(t *testing.T, server, method, path, key, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, server+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(answer)
}

// dialTwo connects an agent of each tenant.
func dialTwo(t *testing.T, s *served, keys ...string) (all []*agent.Agent) {
	t.Helper()
	for _, k := range keys {
		a, err := agent.Dial(t.Context(), "tenants", s.URL, k)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { a.Close() })
		all = append(all, a)
	}
	return all
}
