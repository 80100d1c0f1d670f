package control_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/fault"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestSignedDownloads(t *testing.T) {
	links := controltest.NewLinks()
	until := noon.Add(time.Hour)
	good := controltest.ParseDownload(t, links.Download("downloads/b/1", "report & more.txt", until))
	if good.Key != "downloads/b/1" || good.Name != "report & more.txt" {
		t.Fatalf("the link carries %+v", good)
	}
	with := func(change func(*control.SignedLink)) control.SignedLink { k := good; change(&k); return k }
	signed := func(at time.Time) control.SignedLink {
		return controltest.ParseDownload(t, links.Download(good.Key, good.Name, at))
	}
	seat := controltest.ParseTakeover(t, links.Takeover("aaaaaaaaaaaaaaaaaaaa", "n", noon))
	page := control.SignedLink{Key: "aaaaaaaaaaaaaaaaaaaa", Name: seat.Nonce, Expires: seat.Expires, Signature: seat.Signature}
	for _, c := range []struct {
		what string
		link control.SignedLink
		now  time.Time
		fine bool
	}{
		{"at once", good, noon, true},
		{"in the last second", good, until.Add(-time.Nanosecond), true},
		{"exactly at its end", good, until, false},
		{"after it", good, until.Add(time.Second), false},
		{"signed to end in 1970", signed(time.Unix(0, 0)), time.Unix(-10, 0), false},
		{"signed to end before", signed(time.Unix(-5, 0)), time.Unix(-10, 0), false},
		{"signed to end in the past", signed(noon.Add(-time.Second)), noon, false},
		{"expiry 0", with(func(k *control.SignedLink) { k.Expires = "0" }), noon, false},
		{"a negative expiry", with(func(k *control.SignedLink) { k.Expires = "-1" }), noon, false},
		{"no expiry", with(func(k *control.SignedLink) { k.Expires = "" }), noon, false},
		{"a later expiry", with(func(k *control.SignedLink) { k.Expires += "0" }), noon, false},
		{"an expiry written otherwise", with(func(k *control.SignedLink) { k.Expires = "+" + k.Expires }), noon, false},
		{"what is no number", with(func(k *control.SignedLink) { k.Expires = "soon" }), noon, false},
		{"another key", with(func(k *control.SignedLink) { k.Key = "downloads/b/2" }), noon, false},
		{"another name", with(func(k *control.SignedLink) { k.Name = "x" }), noon, false},
		{"parts moved about", with(func(k *control.SignedLink) { k.Key, k.Name = k.Key+k.Name[:1], k.Name[1:] }), noon, false},
		{"another signature", with(func(k *control.SignedLink) { k.Signature = strings.ToLower(k.Signature) }), noon, false},
		{"no signature", with(func(k *control.SignedLink) { k.Signature = "" }), noon, false},
		{"the signature of a takeover", page, noon, false},
	} {
		if err := links.CheckDownload(c.link, c.now); (err == nil) != c.fine || err != nil && !errors.Is(err, control.ErrLink) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	other := controltest.NewLinks()
	other.Secret = []byte("another secret of thirty-two byt")
	if err := other.CheckDownload(good, noon); !errors.Is(err, control.ErrLink) {
		t.Errorf("a link signed elsewhere: %v", err)
	}
}

func TestSignedTakeovers(t *testing.T) {
	links := controltest.NewLinks()
	const id box.ID = "aaaaaaaaaaaaaaaaaaaa"
	good := controltest.ParseTakeover(t, links.Takeover(id, "nonce", noon))
	end := noon.Add(control.TakeoverLinkLife)
	for now, fine := range map[time.Time]bool{noon: true, end.Add(-time.Second): true, end: false, end.Add(time.Second): false} {
		until, err := links.CheckTakeover(good, now)
		if (err == nil) != fine || !until.Equal(end) || err != nil && errors.Is(err, control.ErrLink) {
			t.Errorf("at %v: until %v, %v", now, until, err)
		}
	}
	with := func(change func(*control.TakeoverLink)) control.TakeoverLink { k := good; change(&k); return k }
	for what, forged := range map[string]control.TakeoverLink{
		"another box":    with(func(k *control.TakeoverLink) { k.Box = "bbbbbbbbbbbbbbbbbbbb" }),
		"another nonce":  with(func(k *control.TakeoverLink) { k.Nonce = "other" }),
		"a later expiry": with(func(k *control.TakeoverLink) { k.Expires += "0" }),
		"no expiry":      with(func(k *control.TakeoverLink) { k.Expires = "" }),
		"truncated":      with(func(k *control.TakeoverLink) { k.Signature = k.Signature[:40] }),
		"parts moved":    with(func(k *control.TakeoverLink) { k.Nonce, k.Expires = k.Nonce+k.Expires[:1], k.Expires[1:] }),
		"nothing":        {},
		"of a secret else": func() control.TakeoverLink {
			l := *links
			l.Secret = []byte("x")
			return controltest.ParseTakeover(t, l.Takeover(id, "nonce", noon))
		}(),
	} {
		if _, err := links.CheckTakeover(forged, noon); !errors.Is(err, control.ErrLink) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A refused link opens nothing, through the use cases too.
func TestRefusedLinksOpenNothing(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	h.Guests.PutFile(id, "a", controltest.File{Content: []byte("x")})
	d, err := h.Get(t.Context(), h.Tenant.Caller, control.GetRequest{Box: id, Path: "a"})
	if err != nil {
		t.Fatal(err)
	}
	link := controltest.ParseDownload(t, d.URL)
	h.Clock.Advance(time.Hour - time.Second)
	if body, _, err := h.OpenDownload(t.Context(), link); err != nil {
		t.Errorf("in its last second: %v", err)
	} else {
		body.Close()
	}
	h.Clock.Advance(time.Second)
	_, _, err = h.OpenDownload(t.Context(), link)
	refused(t, err, fault.Unauthenticated, "expired")
}

func TestAddressesOfScenes(t *testing.T) {
	links := controltest.NewLinks()
	const id box.ID = "abcdefghijklmnopqr27"
	for service, want := range map[string]string{"": "http://abcdefghijklmnopqr27.box.localhost:7070", "api": "http://api--abcdefghijklmnopqr27.box.localhost:7070"} {
		if got := links.Scene(id, service); got != want {
			t.Errorf("scene %q is %s", service, got)
		}
		back, name, ok := links.SceneLabel(strings.TrimPrefix(want, "http://"))
		if back != id || name != service || !ok {
			t.Errorf("%s reads as %s, %q, %v", want, back, name, ok)
		}
	}
	if back, _, ok := links.SceneLabel("ABCDEFGHIJKLMNOPQR27.Box.Localhost:7070"); back != id || !ok {
		t.Error("hosts are the same in upper case")
	}
	for _, host := range []string{"", "box.localhost:7070", "x.box.localhost:7070", "abcdefghijklmnopqr27.box.example.com", "abcdefghijklmnopqr27.box.localhost",
		"a.abcdefghijklmnopqr27.box.localhost:7070", "abcdefghijklmnopqr27.box.localhost:7070.example.com"} {
		if id, name, ok := links.SceneLabel(host); ok {
			t.Errorf("%q reads as %s, %q", host, id, name)
		}
	}
	// The longest name of a service still gives a label that DNS takes.
	label, _, _ := strings.Cut(strings.TrimPrefix(links.Scene(id, strings.Repeat("a", box.MaxServiceName)), "http://"), ".")
	if len(label) > 63 {
		t.Errorf("label of %d characters", len(label))
	}
}
