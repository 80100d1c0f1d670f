package mcp

import (
	"io"
	"net/http"
	"testing"
)

// What the door costs: a command in a box that answers at once, over real HTTP.
func BenchmarkExec(b *testing.B) {
	w := newWorld(b, nil)
	c := w.connect(w.Tenant.Key.Secret)
	message := callMessage(1, "sandbox_exec", execArgs(c.box(), "true"))
	for b.Loop() {
		benchPost(b, c, message)
	}
}

// The same without a tool: transport, authentication and session alone.
func BenchmarkPing(b *testing.B) {
	w := newWorld(b, nil)
	c := w.connect(w.Tenant.Key.Secret)
	for b.Loop() {
		benchPost(b, c, ping)
	}
}

func benchPost(b *testing.B, c *client, message string) {
	resp, err := http.DefaultClient.Do(c.request(b.Context(), http.MethodPost, message, nil))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		b.Fatal(resp.Status, err)
	}
	resp.Body.Close()
}
