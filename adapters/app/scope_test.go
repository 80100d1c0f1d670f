package app_test

import (
	"regexp"
	"strings"
	"testing"

	"parallelsandbox/domain/box"
)

// What another tenant has is not there: not in a list, and not under its address, which
// answers as one that never was.
func TestEveryPageIsClosedToOthers(t *testing.T) {
	w := open(t)
	id := string(w.lived())
	told := w.ask(box.ID(id), "please type the code")
	owner, other := w.signedIn(w.Tenant.ID), w.signedIn(w.Other.ID)
	owner.get("/settings")
	owner.post("/settings/secrets", "name", "ACME_TOKEN", "value", "hunter22hunter22")
	owner.post("/settings/keys", "name", "acme laptop")

	for _, path := range []string{"/boxes", "/boxes?all=1", "/takeovers", "/credits", "/credits/statement?month=2026-01", "/settings"} {
		if p := other.get(path); p.StatusCode != 200 {
			t.Errorf("%s: %d", path, p.StatusCode)
		}
		other.get(path).lacks(t, id, "Checkout", "ACME_TOKEN", "acme laptop", "please type", "octocat", "npm ci", "Acme<")
	}
	rows := regexp.MustCompile(`/takeovers/([a-z2-7]{20})/return`).FindStringSubmatch(owner.get("/takeovers").body)
	if rows == nil {
		t.Fatal("the owner is not shown the takeover")
	}
	const never = "aaaaaaaaaaaaaaaaaaaa"
	plain := func(p page) string {
		return strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(p.body, id, "ID"), never, "ID"), rows[1], "ID")
	}
	other.get("/boxes")
	for _, c := range []struct{ method, path string }{
		{"GET", "/boxes/{id}"}, {"GET", "/boxes/{id}/live"}, {"GET", "/boxes/{id}/moment"}, {"GET", "/boxes/{id}?at=2"},
		{"POST", "/boxes/{id}/stop"}, {"POST", "/boxes/{id}/seat"}, {"POST", "/takeovers/{takeover}/return"},
	} {
		ask := func(box, takeover string) page {
			path := strings.NewReplacer("{id}", box, "{takeover}", takeover).Replace(c.path)
			if c.method == "POST" {
				return other.post(path)
			}
			return other.get(path)
		}
		theirs, none := ask(id, rows[1]), ask(never, never)
		if theirs.StatusCode != 404 || none.StatusCode != 404 || plain(theirs) != plain(none) {
			t.Errorf("%s %s: %d for another's, %d for none", c.method, c.path, theirs.StatusCode, none.StatusCode)
		}
	}
	owner.get("/boxes/"+id).wants(t, 200, "Checkout &lt;flow&gt;")
	if owner.get("/boxes"); owner.post("/takeovers/"+rows[1]+"/return", "message", "here you are").StatusCode != 200 {
		t.Error("the owner cannot answer")
	}
	if a := <-told; a.Message != "here you are" {
		t.Errorf("the agent was told %q", a.Message)
	}
}
