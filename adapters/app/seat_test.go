package app_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"parallelsandbox/domain/control"
)

var hidden = regexp.MustCompile(`type="hidden" name="(nonce|expires|signature|takeover)" value="([^"]+)"`)

// fields reads the hidden fields of the form on a page.
func (p page) fields() (all []string) {
	for _, m := range hidden.FindAllStringSubmatch(p.body, -1) {
		all = append(all, m[1], strings.ReplaceAll(m[2], "&#43;", "+"))
	}
	return all
}

func TestALinkGivesTheKeyboardOnce(t *testing.T) {
	w := open(t)
	id := w.lived()
	told := w.ask(id, "Please sign in.\n<b>Then hand back.</b>")
	link, guest := w.link(id), w.browser()
	before := w.revision(id)
	for range 3 { // previews look first
		w.browser().get(link).wants(t, 200, "Checkout &lt;flow&gt;", "Please sign in.", "&lt;b&gt;", "Take over the screen")
	}
	if w.revision(id) != before {
		t.Error("looking at a link left a trace")
	}
	form := guest.get(link).fields()
	p := guest.post("/boxes/"+string(id)+"/takeover", form...)
	p.wants(t, 200, "You have mouse and keyboard", "npm ci", "/boxes/"+string(id)+"/text")
	p.lacks(t, "Cost so far", "href=\"/boxes\"", "href=\"/credits\"", "/stop\"")
	if second := w.browser(); second.get(link).StatusCode != 403 {
		t.Error("a link that was used is good again")
	} else if p := second.post("/boxes/"+string(id)+"/takeover", form...); p.StatusCode != 403 {
		t.Errorf("a form that was used: %d", p.StatusCode)
	}

	guest.get("/boxes/" + string(id) + "/screen")
	if s := w.screen.last(); s.box != id || s.seat == "" || s.who.Tenant != w.Tenant.ID {
		t.Errorf("at the screen: %+v", s)
	}
	guest.get("/boxes/" + string(id))
	guest.post("/boxes/"+string(id)+"/text", "text", "こんにちは\r\n").wants(t, 200)
	if typed := w.Screens.Typed(id); len(typed) != 1 || typed[0].Text != "こんにちは\n" {
		t.Errorf("typed: %+v", typed)
	}
	// Nothing else is theirs.
	for _, path := range []string{"/boxes", "/credits", "/settings", "/takeovers"} {
		if p := guest.get(path); !strings.HasPrefix(p.at, "/signin") {
			t.Errorf("%s: %d", path, p.StatusCode)
		}
	}
	page := guest.get("/boxes/" + string(id))
	p = guest.post("/boxes/"+string(id)+"/return", append(page.fields(), "message", "サインインしました。\r\nどうぞ。", "answer", "return")...)
	p.wants(t, 200, "Handed back")
	if a := <-told; a.Message != "サインインしました。\nどうぞ。" || a.Declined {
		t.Errorf("the agent was told %+v", a)
	}
	if p := guest.get("/boxes/" + string(id)); !strings.HasPrefix(p.at, "/signin") {
		t.Errorf("after handing back: %d at %s", p.StatusCode, p.at)
	}
}

func TestLinksThatGiveNothing(t *testing.T) {
	w := open(t)
	id := w.lived()
	other, err := w.Start(t.Context(), w.Tenant.Caller, control.StartRequest{})
	w.must(err)
	good := w.link(id)
	late := w.link(id)
	b := w.browser()
	for what, link := range map[string]string{
		"bare": "/boxes/" + string(id) + "/takeover", "cut": good[:len(good)-1], "another nonce": strings.Replace(good, "nonce=", "nonce=a", 1),
		"later": strings.Replace(good, "expires=1", "expires=2", 1), "another box": strings.Replace(good, string(id), string(other.ID), 1),
		"no box": strings.Replace(good, string(id), "aaaaaaaaaaaaaaaaaaaa", 1),
	} {
		p := b.get(link)
		if p.StatusCode != 403 || strings.Contains(p.body, "Checkout") {
			t.Errorf("%s: %d", what, p.StatusCode)
		}
	}
	w.Clock.Advance(control.TakeoverLinkLife - time.Second)
	b.get(late).wants(t, 200)
	form := b.get(late).fields()
	w.Clock.Advance(time.Second)
	b.get(late).wants(t, 403)
	b.post("/boxes/"+string(id)+"/takeover", form...).wants(t, 403)
}

// Whoever is signed in looks, takes the keyboard, and gives it back.
func TestTheTenantsPeopleAtTheScreen(t *testing.T) {
	w := open(t)
	id := w.lived()
	path := "/boxes/" + string(id)
	b, c := w.signedIn(w.Tenant.ID), w.signedIn(w.Tenant.ID)
	b.get(path).wants(t, 200, "You are watching", "Take mouse and keyboard")
	b.get(path + "/screen")
	if s := w.screen.last(); s.seat != "" || s.who.Person != "Aiko" {
		t.Errorf("looking on: %+v", s)
	}
	b.post(path+"/text", "text", "x").wants(t, 409)
	b.get(path)
	b.post(path+"/seat").wants(t, 200, "You have mouse and keyboard")
	c.get(path).wants(t, 200, "Aiko has mouse and keyboard")
	c.post(path+"/seat").wants(t, 409)
	c.get(path + "/screen")
	if s := w.screen.last(); s.seat != "" {
		t.Errorf("another person types: %+v", s)
	}
	b.get(path)
	b.post(path+"/leave").wants(t, 200, "gave the keyboard back")
	c.get(path).wants(t, 200, "Take mouse and keyboard")
}

func TestAnsweringFromTheList(t *testing.T) {
	w := open(t)
	id := w.lived()
	b := w.signedIn(w.Tenant.ID)
	b.get("/takeovers").wants(t, 200, "Nobody waits for you")
	told := w.ask(id, "二段階認証のコードをお願いします")
	w.Clock.Advance(90 * time.Second)
	p := b.get("/takeovers")
	p.wants(t, 200, "二段階認証のコードをお願いします", "Asked 1 min 30 s ago", "Checkout &lt;flow&gt;", `<span class="count">1</span>`)
	b.get("/boxes").wants(t, 200, "asks for you")
	at := regexp.MustCompile(`/takeovers/[a-z2-7]{20}/return`).FindString(p.body)
	b.get("/takeovers")
	b.post(at, "message", "not today", "answer", "decline").wants(t, 200, "Declined", "Nobody waits for you", "not today")
	if a := <-told; !a.Declined || a.Message != "not today" {
		t.Errorf("the agent was told %+v", a)
	}
	b.get("/boxes/"+string(id)).wants(t, 200, "Custody", "declined", "Asked by an agent", "A person was asked for")
}

func TestASeatIsForOneBoxOnly(t *testing.T) {
	w := open(t)
	id := w.lived()
	other, err := w.Start(t.Context(), w.Tenant.Caller, control.StartRequest{Name: "another"})
	w.must(err)
	theirs, err := w.Start(t.Context(), w.Other.Caller, control.StartRequest{Name: "theirs"})
	w.must(err)
	seat, err := w.TakeSeat(t.Context(), w.Tenant.Caller, id)
	w.must(err)
	sit := func(token string) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "psbx_seat", Value: token}) }
	}
	b := w.browser()
	b.get("/boxes/"+string(id), sit(seat.Token)).wants(t, 200, "Checkout")
	for _, c := range []struct{ box, token string }{{string(other.ID), seat.Token}, {string(theirs.ID), seat.Token}, {string(id), seat.Token[:len(seat.Token)-1]}, {string(id), "x." + seat.Token}} {
		if p := b.get("/boxes/"+c.box, sit(c.token)); !strings.HasPrefix(p.at, "/signin") {
			t.Errorf("%s with %s: %d at %s", c.box, c.token, p.StatusCode, p.at)
		}
	}
	// Somebody who is signed in to another tenant comes by the link as a guest.
	elsewhere := w.signedIn(w.Other.ID)
	p := elsewhere.get("/boxes/"+string(id), sit(seat.Token))
	p.wants(t, 200, "You have mouse and keyboard")
	p.lacks(t, "Cost so far", "Globex", "/stop\"")
	elsewhere.get("/boxes").lacks(t, "Checkout")
}
