package control_test

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/pricing"
)

func TestSyncUnderAKey(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	data := archive(t, map[string]string{"a": "12345", "b": "678"})
	r := func() control.SyncRequest {
		return control.SyncRequest{Box: id, Dest: "app", Repo: "shop", Archive: bytes.NewReader(data), IdempotencyKey: "k"}
	}
	broken := r()
	broken.Archive = strings.NewReader("no archive")
	_, err := h.Sync(t.Context(), h.Tenant.Caller, broken)
	refused(t, err, fault.Invalid)
	want := control.SyncResult{Put: control.Put{Files: 2, Bytes: 8}}
	for n, at := range []*controltest.Harness{h, h, again(t, h, controltest.Replica)} {
		res, err := at.Sync(t.Context(), h.Tenant.Caller, r())
		if want.Repeated = n > 0; err != nil || res != want {
			t.Errorf("%+v, %v; want %+v", res, err, want)
		}
	}
	other := r()
	other.Dest = "elsewhere"
	_, err = h.Sync(t.Context(), h.Tenant.Caller, other)
	refused(t, err, fault.Conflict, "use a new key")
	if got := types(t, h, id); strings.Count(got, "synced") != 1 {
		t.Errorf("events: %s", got)
	}
	if n := billed(t, h, id, pricing.Sync); n != 1 {
		t.Errorf("%d uploads were debited", n)
	}
	other.Box = "aaaaaaaaaaaaaaaaaaaa"
	_, err = h.Sync(t.Context(), h.Tenant.Caller, other)
	refused(t, err, fault.NotFound)
}

// held is an upload that takes until it is released.
type held struct {
	io.Reader
	release <-chan struct{}
}

func (s *held) Read(p []byte) (int, error) { <-s.release; return s.Reader.Read(p) }

// An upload that comes while the first one runs is not read: it waits for that one.
func TestSyncsAtTheSameTimeUnderAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := controltest.New(t, new(memory.Ledger))
		id := start(t, h, control.StartRequest{})
		release := make(chan struct{})
		var all sync.WaitGroup
		for n := range 3 {
			all.Go(func() {
				data := &held{bytes.NewReader(archive(t, map[string]string{"a": "1"})), release}
				res, err := h.Sync(t.Context(), h.Tenant.Caller, control.SyncRequest{Box: id, Archive: data, IdempotencyKey: "k"})
				if err != nil || res.Files != 1 || res.Repeated != (n > 0) {
					t.Errorf("%d: %+v, %v", n, res, err)
				}
			})
			synctest.Wait()
		}
		close(release)
		all.Wait()
		if got := types(t, h, id); strings.Count(got, "synced") != 1 {
			t.Errorf("events: %s", got)
		}
	})
}

func TestGetUnderAKey(t *testing.T) {
	h := open(t)
	id := start(t, h, control.StartRequest{})
	h.Guests.PutFile(id, "f", controltest.File{Content: []byte("first")})
	h.Guests.PutFile(id, "g", controltest.File{Content: []byte("g")})
	r := control.GetRequest{Box: id, Path: "f", IdempotencyKey: "k"}
	content := func(at *controltest.Harness, repeated bool) string {
		t.Helper()
		d, err := at.Get(t.Context(), h.Tenant.Caller, r)
		if err != nil || d.Repeated != repeated || !d.ExpiresAt.Equal(at.Clock.Now().Add(control.LinkLife)) {
			t.Fatalf("download %+v, %v", d, err)
		}
		body, _, err := at.OpenDownload(t.Context(), controltest.ParseDownload(t, d.URL))
		if err != nil {
			t.Fatal(err)
		}
		defer body.Close()
		text, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := content(h, false); got != "first" {
		t.Errorf("got %q", got)
	}
	h.Guests.PutFile(id, "f", controltest.File{Content: []byte("second")})
	h.Clock.Advance(control.AnswerLife - time.Second)
	if got := content(h, true); got != "first" {
		t.Errorf("a repeat got %q", got)
	}
	// Another life of the service has no copy, and makes one for nothing.
	next := again(t, h, controltest.Replica)
	next.Guests.PutFile(id, "f", controltest.File{Content: []byte("second")})
	if got := content(next, true); got != "second" {
		t.Errorf("a later life got %q", got)
	}
	other := r
	other.Path = "g"
	for _, at := range []*controltest.Harness{h, next} {
		_, err := at.Get(t.Context(), h.Tenant.Caller, other)
		refused(t, err, fault.Conflict, "use a new key")
	}
	h.Clock.Advance(time.Second)
	_, err := h.Get(t.Context(), h.Tenant.Caller, r)
	refused(t, err, fault.Conflict, "an hour ago", "new key")
	if got := types(t, h, id); strings.Count(got, "fetched") != 1 {
		t.Errorf("events: %s", got)
	}
	if n := billed(t, h, id, pricing.Get); n != 1 {
		t.Errorf("%d downloads were debited", n)
	}
	_, err = h.Get(t.Context(), h.Other.Caller, r)
	refused(t, err, fault.NotFound)
}
