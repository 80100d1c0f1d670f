package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"parallelsandbox/adapters/rest"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
)

func TestPanicIsAnAnswerThatGivesNothingAway(t *testing.T) {
	w := open(t, nil)
	id := w.start()
	w.Guests.OnHealth(func(context.Context, box.ID) (control.Health, error) { panic("the password is hunter2") })
	resp, body := w.do("GET", "/v1/boxes/"+string(id), nil)
	if resp.StatusCode != 500 || strings.Contains(body, "hunter2") || resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if log := w.log.String(); !strings.Contains(log, "hunter2") || !strings.Contains(log, resp.Header.Get("X-Request-Id")) {
		t.Errorf("the log does not tell what happened:\n%s", log)
	}
	if resp, _ := w.do("GET", "/v1/keys", nil); resp.StatusCode != 200 {
		t.Errorf("afterwards: %d", resp.StatusCode)
	}
}

func TestRequestIDs(t *testing.T) {
	w := open(t, nil)
	id := w.start()
	for sent, kept := range map[string]bool{"trace-1.a_b": true, "": false, "with space": false, strings.Repeat("x", 65): false} {
		resp, _ := w.do("GET", "/v1/keys", nil, func(r *http.Request) { r.Header.Set("X-Request-Id", sent) })
		got := resp.Header.Get("X-Request-Id")
		if kept != (got == sent) || got == "" {
			t.Errorf("sent %q, answered %q", sent, got)
		}
	}
	w.do("DELETE", "/v1/boxes/"+string(id), nil, func(r *http.Request) { r.Header.Set("X-Request-Id", "trace-2") })
	for _, r := range w.Records(t) {
		if r.Type == "box.stopping" && r.Meta.Correlation != "trace-2" {
			t.Errorf("the event follows from %q", r.Meta.Correlation)
		}
	}
}

func TestLogHoldsNoSecrets(t *testing.T) {
	w := open(t, nil)
	id := w.start()
	w.Guests.PutFile(id, "f", controltest.File{Content: []byte("x")})
	d, err := w.Get(context.Background(), w.Tenant.Caller, control.GetRequest{Box: id, Path: "f"})
	if err != nil {
		t.Fatal(err)
	}
	link := strings.TrimPrefix(d.URL, controltest.Base)
	w.do("GET", link, nil)
	w.do("GET", link+"x", nil)
	w.do("PUT", "/v1/secrets/TOKEN", strings.NewReader("s3cr3t-value"))
	w.Vault.Fail(errors.New("vault is sealed"))
	w.do("PUT", "/v1/secrets/TOKEN", strings.NewReader("s3cr3t-value"))
	w.do("GET", "/v1/nowhere/"+w.Tenant.Key.Secret+"?key="+w.Tenant.Key.Secret, nil)
	w.do("POST", "/v1/keys", strings.NewReader(`{"name":"x","s3cr3t-value":1}`))
	log := w.log.String()
	signature := controltest.ParseDownload(t, d.URL).Signature
	for _, secret := range []string{signature, "s3cr3t-value", w.Tenant.Key.Secret, "expires=", "/v1/nowhere/"} {
		if strings.Contains(log, secret) {
			t.Errorf("the log holds %q:\n%s", secret, log)
		}
	}
	for _, fact := range []string{"route=/v1/downloads/{box}/{id} status=200", "status=403", "route=unknown status=404", "tenant=acme", "vault is sealed"} {
		if !strings.Contains(log, fact) {
			t.Errorf("the log does not say %q:\n%s", fact, log)
		}
	}
}

func TestMetricsAreByRouteAndNeverByID(t *testing.T) {
	w := open(t, nil)
	a, b := w.start(), w.start()
	for _, path := range []string{"/v1/boxes/" + string(a), "/v1/boxes/" + string(b), "/v1/boxes/aaaaaaaaaaaaaaaaaaaa", "/nowhere/1", "/nowhere/2"} {
		w.do("GET", path, nil)
	}
	w.do("BREW", "/v1/boxes", nil)
	_, text := w.do("GET", "/metrics", nil)
	for _, line := range []string{
		`psbx_http_requests_total{method="GET",route="/v1/boxes/{id}",status="200"} 2`,
		`psbx_http_requests_total{method="GET",route="/v1/boxes/{id}",status="404"} 1`,
		`psbx_http_requests_total{method="GET",route="unknown",status="404"} 2`,
		`psbx_http_requests_total{method="other",route="unknown",status="405"} 1`,
		`psbx_http_request_seconds_count{method="GET",route="/v1/boxes/{id}"} 3`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s in\n%s", line, text)
		}
	}
	if regexp.MustCompile(`[a-z2-7]{20}`).MatchString(text) {
		t.Error("an id is in the metrics")
	}
}

func TestReadiness(t *testing.T) {
	stuck := make(chan struct{})
	defer close(stuck)
	w := open(t, func(c *rest.Config) {
		c.Ready = []rest.Check{
			{Name: "ledger", Probe: func(context.Context) error { return nil }},
			{Name: "driver", Probe: func(context.Context) error { return errors.New("runsc is not at /usr/bin/runsc") }},
			{Name: "views", Probe: func(context.Context) error { <-stuck; return nil }},
		}
	})
	resp, body := w.do("GET", "/readyz", nil)
	want := `{"ok":false,"checks":[{"name":"ledger","ok":true},{"name":"driver","ok":false},{"name":"views","ok":false}]}`
	if resp.StatusCode != 503 || strings.TrimSpace(body) != want {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if !strings.Contains(w.log.String(), "runsc is not at") {
		t.Error("the log does not say what is wrong")
	}
}

func TestDownloadLinks(t *testing.T) {
	w := open(t, nil)
	id := w.start()
	w.Guests.PutFile(id, "f.txt", controltest.File{Content: []byte("content")})
	d, err := w.Get(context.Background(), w.Tenant.Caller, control.GetRequest{Box: id, Path: "f.txt"})
	if err != nil {
		t.Fatal(err)
	}
	u, _ := url.Parse(d.URL)
	resign := func(until time.Time) string { // a link that is ours, with another expiry
		again, _ := url.Parse(w.Links.Download(controltest.ParseDownload(t, d.URL).Key, "f.txt", until))
		return again.RequestURI()
	}
	changed := func(name, value string) string {
		q := u.Query()
		q.Set(name, value)
		return u.Path + "?" + q.Encode()
	}
	now := w.Clock.Now()
	for what, c := range map[string]struct {
		address string
		status  int
	}{
		"as signed":                 {u.RequestURI(), 200},
		"a second to go":            {resign(now.Add(time.Second)), 200},
		"exactly now":               {resign(now), 403},
		"past":                      {resign(now.Add(-time.Second)), 403},
		"zero, signed":              {resign(time.Unix(0, 0)), 403},
		"negative, signed":          {resign(time.Unix(-5, 0)), 403},
		"expiry zero":               {changed("expires", "0"), 403},
		"expiry negative":           {changed("expires", "-1"), 403},
		"expiry later":              {changed("expires", strconv.FormatInt(now.Add(24*time.Hour).Unix(), 10)), 403},
		"expiry not a number":       {changed("expires", "never"), 403},
		"expiry too large":          {changed("expires", "99999999999999999999"), 403},
		"expiry empty":              {changed("expires", ""), 403},
		"name changed":              {changed("name", "g.txt"), 403},
		"name empty":                {changed("name", ""), 403},
		"signature changed":         {changed("signature", "A"+u.Query().Get("signature")[1:]), 403},
		"signature longer":          {changed("signature", u.Query().Get("signature")+"A"), 403},
		"signature empty":           {changed("signature", ""), 403},
		"path changed":              {strings.Replace(u.RequestURI(), string(id), "aaaaaaaaaaaaaaaaaaaa", 1), 403},
		"path climbs":               {strings.Replace(u.RequestURI(), string(id), "..%2f..", 1), 403},
		"name twice":                {u.RequestURI() + "&name=f.txt", 403},
		"nothing but the path":      {u.Path, 403},
		"a takeover's link instead": {u.Path + "?" + must(url.Parse(w.Links.Takeover(id, "n", now))).RawQuery, 403},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			resp, body := w.do(method, c.address, nil)
			if resp.StatusCode != c.status {
				t.Errorf("%s: %s gives %d %s", what, method, resp.StatusCode, body)
			}
			if method == "GET" && c.status == 200 && body != "content" || c.status != 200 && strings.Contains(body, "content\"") {
				t.Errorf("%s: body %q", what, body)
			}
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestListIsPagedWithoutGapsOrRepeats(t *testing.T) {
	w := open(t, nil)
	for i := range 7 {
		started, err := w.Start(context.Background(), w.Tenant.Caller, control.StartRequest{Name: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Stop(context.Background(), w.Tenant.Caller, started.ID); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 { // some at the same moment
			w.Clock.Advance(time.Second)
		}
	}
	for limit := 1; limit <= 8; limit++ {
		var names, cursor string
		for pages := 0; ; pages++ {
			var page struct {
				Boxes []control.BoxRow
				Next  string
			}
			_, body := w.do("GET", fmt.Sprintf("/v1/boxes?limit=%d&cursor=%s", limit, cursor), nil)
			if err := json.Unmarshal([]byte(body), &page); err != nil || pages > 7 {
				t.Fatalf("limit %d: %v %s", limit, err, body)
			}
			for _, b := range page.Boxes {
				names += b.Name
			}
			if cursor = page.Next; cursor == "" {
				if want := (7 + limit - 1) / limit; pages+1 != want {
					t.Errorf("limit %d: %d pages, want %d", limit, pages+1, want)
				}
				break
			}
		}
		if names != "6543210" {
			t.Errorf("limit %d: %s", limit, names)
		}
	}
}
