package gvisor

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/hypervisortest"
)

// lines keeps one client for each connection: a second on the same would start HTTP anew.
type lines struct{ clients sync.Map }

func (l *lines) over(c net.Conn) *http.Client {
	client, _ := l.clients.LoadOrStore(c, clientOver(c))
	return client.(*http.Client)
}

func (l *lines) talk(ctx context.Context, c net.Conn) error {
	out, code, err := run(ctx, l.over(c), "echo hello")
	if err != nil || code != 0 || out != "hello\n" {
		return fmt.Errorf("the agent said %q, %d, %w", out, code, err)
	}
	return nil
}

func (r *rig) subject(l *lines) hypervisortest.Subject {
	return hypervisortest.Subject{
		Restart: func(t *testing.T) hypervisor.Driver {
			r.restart()
			return r.d
		},
		Spec:  func(*testing.T) hypervisor.Spec { return r.spec() },
		Kill:  func(_ *testing.T, id hypervisor.ID) { r.kill(id, unix.SIGKILL) },
		Leaks: func(*testing.T) []string { return r.leaks() },
		Talk:  l.talk,
		Limit: step,
	}
}

func TestContract(t *testing.T) {
	r := newRig(t)
	hypervisortest.Run(t, r.subject(new(lines)))
}

func TestFreezer(t *testing.T) {
	r := newRig(t)
	l := new(lines)
	s := hypervisortest.FreezerSubject{Subject: r.subject(l), BreakThaw: r.breakThaw}
	s.Limit = 6 * step // many machines a step, on a busy host too
	s.Remember = func(ctx context.Context, c net.Conn, value string) error {
		_, err := ask(ctx, l.over(c), "/remember", value)
		return err
	}
	s.Recall = func(ctx context.Context, c net.Conn) (string, error) { return ask(ctx, l.over(c), "/recall", "") }
	hypervisortest.RunFreezer(t, s)
}

// breakThaw puts nonsense in the place of saved memory.
func (r *rig) breakThaw(t *testing.T, id hypervisor.ID) (mend func()) {
	rec, err := r.d.dir.load(id)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(r.d.dir.memory(id), rec.Saved, "checkpoint.img")
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	put := func(data []byte) {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put([]byte("nonsense"))
	return func() { put(good) }
}

func ask(ctx context.Context, c *http.Client, path, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent"+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	return string(out), err
}
