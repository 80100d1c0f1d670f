package notice_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"parallelsandbox/adapters/notice"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func clock() time.Time { return now }

func open(t *testing.T, place string) *notice.Poller {
	t.Helper()
	p, err := notice.New(place, slog.New(slog.DiscardHandler), clock)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// In a file and at an address the same texts mean the same.
func TestWhatCloudsWrite(t *testing.T) {
	soon, later := now.Add(30*time.Second), now.Add(2*time.Minute)
	long := strings.Repeat("x", 121)
	for name, c := range map[string]struct {
		body string
		want notice.Notice // zero for none
		err  string
	}{
		"spot instance action":    {body: `{"action":"terminate","time":"2026-01-02T03:06:00Z"}`, want: notice.Notice{Reason: "terminate", Deadline: now.Add(115 * time.Second)}},
		"action without a time":   {body: `{"action":"stop"}`, want: notice.Notice{Reason: "stop", Deadline: later}},
		"time that is none":       {body: `{"action":"stop","time":"soon"}`, want: notice.Notice{Reason: "stop", Deadline: later}},
		"time elsewhere":          {body: `{"action":"stop","time":"2026-01-02T05:05:00+02:00"}`, want: notice.Notice{Reason: "stop", Deadline: now.Add(55 * time.Second)}},
		"other JSON":              {body: `{"x":1}`, want: notice.Notice{Reason: "reclaim notice", Deadline: later}},
		"broken JSON":             {body: `{"action":`, want: notice.Notice{Reason: "reclaim notice", Deadline: later}},
		"preempted":               {body: "TRUE\n", want: notice.Notice{Reason: "preempted", Deadline: soon}},
		"not preempted":           {body: "FALSE\n"},
		"maintenance event none":  {body: "NONE"},
		"a text":                  {body: " rack 7 is retired\n", want: notice.Notice{Reason: "rack 7 is retired", Deadline: later}},
		"a long text":             {body: long, want: notice.Notice{Reason: "reclaim notice", Deadline: later}},
		"several lines":           {body: "a\nb", want: notice.Notice{Reason: "reclaim notice", Deadline: later}},
		"escapes":                 {body: "a\x1b[31m", want: notice.Notice{Reason: "reclaim notice", Deadline: later}},
		"no text":                 {body: "\xff\xfe", want: notice.Notice{Reason: "reclaim notice", Deadline: later}},
		"endless":                 {body: strings.Repeat("y", 1<<20), want: notice.Notice{Reason: "reclaim notice", Deadline: later}},
		"a long action":           {body: `{"action":"` + long + `"}`, want: notice.Notice{Reason: "reclaim notice", Deadline: later}},
		"a page":                  {body: "<!doctype html><p>Log in first", err: "a page for people"},
		"nothing scheduled":       {body: `{"DocumentIncarnation":1,"Events":[]}`},
		"something else is":       {body: `{"Events":[{"EventType":"Freeze","NotBefore":"Fri, 02 Jan 2026 03:05:00 GMT"}]}`},
		"preemption is scheduled": {body: `{"Events":[{"EventType":"Reboot"},{"EventType":"Preempt","NotBefore":"Fri, 02 Jan 2026 03:05:00 GMT"}]}`, want: notice.Notice{Reason: "preempt", Deadline: now.Add(55 * time.Second)}},
		"the first of two":        {body: `{"Events":[{"EventType":"Terminate","NotBefore":"Fri, 02 Jan 2026 04:00:00 GMT"},{"EventType":"Preempt","NotBefore":""}]}`, want: notice.Notice{Reason: "preempt", Deadline: soon}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "notice")
			if err := os.WriteFile(file, []byte(c.body), 0o600); err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, c.body) }))
			defer server.Close()
			for _, place := range []string{file, server.URL + "/latest/meta-data/spot/instance-action"} {
				n, ok, err := open(t, place).Look(t.Context())
				if n != c.want || ok != (c.want != notice.Notice{}) || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("%s reads %+v, %v, %v; want %+v %q", place, n, ok, err, c.want, c.err)
				}
			}
		})
	}
}

func TestWhatAnAddressAnswers(t *testing.T) {
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		reason  string // empty for no notice
		err     string
	}{
		"not found":  {handler: answer(404, "not found")},
		"gone":       {handler: answer(410, "gone")},
		"no content": {handler: answer(204, "")},
		"empty":      {handler: answer(200, " \n")},
		"an error":   {handler: answer(500, "TRUE"), err: "Internal Server Error"},
		"a redirect": {handler: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, err: "Found"},
		"a header that two clouds demand": {handler: func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Metadata-Flavor") != "Google" || r.Header.Get("Metadata") != "true" {
				w.WriteHeader(http.StatusForbidden)
			}
			io.WriteString(w, "TRUE")
		}, reason: "preempted"},
		"a token that one cloud demands": {handler: func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token" && r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds") != "":
				io.WriteString(w, "token-1\n")
			case r.Method == http.MethodGet && r.Header.Get("X-Aws-Ec2-Metadata-Token") == "token-1":
				io.WriteString(w, `{"action":"hibernate"}`)
			default:
				w.WriteHeader(http.StatusUnauthorized)
			}
		}, reason: "hibernate"},
		"no token either": {handler: answer(401, ""), err: "Unauthorized"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(c.handler)
			defer server.Close()
			n, ok, err := open(t, server.URL).Look(t.Context())
			if n.Reason != c.reason || ok != (c.reason != "") || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("reads %+v, %v, %v; want %q %q", n, ok, err, c.reason, c.err)
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		server := httptest.NewServer(answer(200, "TRUE"))
		server.Close()
		if n, ok, err := open(t, server.URL).Look(t.Context()); ok || err != nil {
			t.Errorf("reads %+v, %v, %v", n, ok, err)
		}
	})
}

func TestPlaces(t *testing.T) {
	for _, place := range []string{"ftp://example.com/x", "http://", "http://a b/"} {
		if _, err := notice.New(place, slog.New(slog.DiscardHandler), clock); err == nil || !strings.Contains(err.Error(), place) {
			t.Errorf("%q is a place to look at: %v", place, err)
		}
	}
	if n, ok, err := open(t, filepath.Join(t.TempDir(), "no", "such")).Look(t.Context()); ok || err != nil {
		t.Errorf("a file that is not there reads %+v, %v, %v", n, ok, err)
	}
	if n, ok, err := open(t, t.TempDir()).Look(t.Context()); ok || err == nil {
		t.Errorf("a folder reads %+v, %v, %v", n, ok, err)
	}
	empty := filepath.Join(t.TempDir(), "notice")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if n, ok, err := open(t, empty).Look(t.Context()); !ok || err != nil || n.Reason != "reclaim notice" {
		t.Errorf("an empty file reads %+v, %v, %v", n, ok, err)
	}
}

func TestANoticeIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "notice")
		var log bytes.Buffer
		p, err := notice.New(file, slog.New(slog.NewTextHandler(&log, nil)), time.Now)
		if err != nil {
			t.Fatal(err)
		}
		write := func(text string) {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		told := make(chan notice.Notice, 8)
		var accept atomic.Bool
		done := make(chan error, 1)
		go func() {
			done <- p.Run(t.Context(), func(_ context.Context, n notice.Notice) error {
				told <- n
				if !accept.Load() {
					return errors.New("the ledger is locked")
				}
				return nil
			})
		}()
		wait := func(d time.Duration, want int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if len(told) != want {
				t.Fatalf("told %d times, want %d", len(told), want)
			}
		}
		wait(time.Minute, 0)
		write(`{"action":"terminate","time":"1999-12-31T23:59:59Z"}`) // of an earlier life
		wait(time.Minute, 0)
		write("the rack moves")
		wait(11*time.Second, 2)
		accept.Store(true)
		wait(5*time.Second, 3)
		if err, n := <-done, <-told; err != nil || n.Reason != "the rack moves" {
			t.Errorf("told %+v, %v", n, err)
		}
		if text := log.String(); strings.Count(text, "cannot be heeded") != 1 || strings.Count(text, "will be reclaimed") != 1 {
			t.Errorf("logged\n%s", text)
		}
	})
}

func TestThePollerEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := open(t, filepath.Join(t.TempDir(), "none")).Run(ctx, nil); err != nil {
		t.Error(err)
	}
}
