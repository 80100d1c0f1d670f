package rest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
)

// The table is part of the contract: a kind that is added must be added here and to statusOf.
func TestEveryKindHasAStatus(t *testing.T) {
	want := map[fault.Kind]int{
		fault.Invalid: 400, fault.Unauthenticated: 401, fault.CreditsExhausted: 402, fault.NotFound: 404, fault.Conflict: 409,
		fault.Interrupted: 410, fault.Terminated: 410, fault.TooLarge: 413, fault.Locked: 423, fault.PlanLimit: 429,
		fault.OutcomeUnknown: 500, fault.Internal: 500, fault.NoCapacity: 503, fault.Unavailable: 503, fault.Timeout: 504,
	}
	for _, k := range fault.Kinds {
		if want[k] == 0 {
			t.Errorf("%s is not in this table", k)
		}
		p := problemOf(fmt.Errorf("while testing: %w", fault.New(k, "a sentence")))
		if p.Status != want[k] || p.Code != k || p.Error != "a sentence" || p.Retryable != k.Retryable() || p.Title == "" {
			t.Errorf("%s gives %+v, want status %d", k, p, want[k])
		}
	}
}

func TestForeignErrorGivesNothingAway(t *testing.T) {
	p := problemOf(fmt.Errorf("open /var/lib/psbx/vault: permission denied"))
	if p.Status != 500 || p.Code != fault.Internal || p.Error != fault.Sentence(fmt.Errorf("x")) {
		t.Errorf("%+v", p)
	}
}

func TestLinkIsForbiddenAndNotUnauthorized(t *testing.T) {
	if p := problemOf(control.ErrLink.Because(fmt.Errorf("x"))); p.Status != http.StatusForbidden {
		t.Errorf("%+v", p)
	}
	rec := httptest.NewRecorder()
	refuse(rec, control.ErrLink)
	if rec.Header().Get("WWW-Authenticate") != "" {
		t.Error("a key is asked for that would not help")
	}
}

func TestDisposition(t *testing.T) {
	for name, want := range map[string]string{
		"notes.txt":      `attachment; filename="notes.txt"`,
		"a b;c=d.txt":    `attachment; filename="a b;c=d.txt"`,
		"":               `attachment; filename="download"`,
		"日本.txt":         `attachment; filename="__.txt"; filename*=UTF-8''%E6%97%A5%E6%9C%AC.txt`,
		"naïve €.md":     `attachment; filename="na_ve _.md"; filename*=UTF-8''na%C3%AFve%20%E2%82%AC.md`,
		`say "hi".txt`:   `attachment; filename="say _hi_.txt"; filename*=UTF-8''say%20%22hi%22.txt`,
		"100%.txt":       `attachment; filename="100_.txt"; filename*=UTF-8''100%25.txt`,
		"a/b\\c":         `attachment; filename="a_b_c"; filename*=UTF-8''a_b_c`,
		"x\r\nSet: 1":    `attachment; filename="x__Set: 1"; filename*=UTF-8''x__Set%3A%201`,
		"bad\xff\xfe.gz": `attachment; filename="bad_.gz"`,
		"--option='":     `attachment; filename="--option='"`,
		"ä'(*).txt":      `attachment; filename="_'(*).txt"; filename*=UTF-8''%C3%A4%27%28%2A%29.txt`,
	} {
		if got := disposition(name); got != want {
			t.Errorf("%q\n got %s\nwant %s", name, got, want)
		}
	}
}
