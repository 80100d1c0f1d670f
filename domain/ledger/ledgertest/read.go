package ledgertest

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"parallelsandbox/domain/ledger"
)

func readAfter(t *testing.T, l ledger.Ledger) {
	mustAppend(t, l, "box-a", 0, entries(1, 5)...)
	mustAppend(t, l, "box-b", 0, entry(9))
	want(t, "after 3", stream(t, l, "box-a", 3), 4, 5)
	want(t, "after the last", stream(t, l, "box-a", 5))
	want(t, "after more than there is", stream(t, l, "box-a", 99))
	for r, err := range l.Read(t.Context(), "box-a", 0) {
		if err != nil || number(t, r) != 1 {
			t.Fatalf("first is %v, %v", r, err)
		}
		break // a reader may stop early
	}
	want(t, "after a reader stopped early", stream(t, l, "box-a", 0), 1, 2, 3, 4, 5)
}

func readBackward(t *testing.T, l ledger.Ledger) {
	const all = 700 // more than any adapter fetches at once
	mustAppend(t, l, "box-a", 0, entries(1, all)...)
	mustAppend(t, l, "box-b", 0, entry(9))
	next := all
	for r, err := range l.ReadBackward(t.Context(), "box-a") {
		if err != nil || r.Stream != "box-a" || r.Revision != ledger.Revision(next) || number(t, r) != next {
			t.Fatalf("got %s@%d where revision %d comes next, %v", r.Stream, r.Revision, next, err)
		}
		next--
	}
	if next != 0 {
		t.Errorf("%d events were not read", next)
	}
	for r, err := range l.ReadBackward(t.Context(), "box-nobody") {
		t.Errorf("an empty stream holds %v, %v", r, err)
	}
	for range l.ReadBackward(t.Context(), "box-a") {
		break // a reader may stop early
	}
	want(t, "after a reader stopped early", stream(t, l, "box-b", 0), 9)
}

func tailAfter(t *testing.T, l ledger.Ledger) {
	at := map[ledger.Stream]ledger.Revision{}
	for n, s := range []ledger.Stream{"box-a", "tenant-b", "box-a", "credit-c"} {
		at[s] = mustAppend(t, l, s, at[s], entry(n+1))
	}
	all := tail(t, l, 0)
	want(t, "everything", all, 1, 2, 3, 4)
	for i, r := range all {
		want(t, "the rest", tail(t, l, r.Position), numbers(t, all[i+1:])...)
	}
	for range l.Tail(t.Context(), 0) {
		break
	}
}

// tailEnds: a consumer that appends while it reads does not chase its own tail.
func tailEnds(t *testing.T, l ledger.Ledger) {
	const size = 600 // more than any adapter reads in one go
	at := mustAppend(t, l, "box-a", 0, entries(0, size-1)...)
	n := 0
	for _, err := range l.Tail(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			mustAppend(t, l, "box-a", at, entries(size, 2*size-1)...)
		}
		n++
	}
	if n != size {
		t.Fatalf("tail saw %d events, %d were there when it began", n, size)
	}
	if all := len(tail(t, l, 0)); all != 2*size {
		t.Fatalf("tail saw %d events afterwards, want %d", all, 2*size)
	}
}

// long: more events than any adapter reads in one go.
func long(t *testing.T, l ledger.Ledger) {
	const groups, size = 6, 250
	var at ledger.Revision
	for g := range groups {
		at = mustAppend(t, l, "box-long", at, entries(g*size, (g+1)*size-1)...)
		mustAppend(t, l, "box-other", ledger.Revision(g), entry(groups*size+g))
	}
	if got := len(stream(t, l, "box-long", 0)); got != groups*size {
		t.Fatalf("read %d, want %d", got, groups*size)
	}
	if got := len(stream(t, l, "box-long", 1)); got != groups*size-1 {
		t.Fatalf("read %d after the first", got)
	}
	if got := len(tail(t, l, 0)); got != groups*size+groups {
		t.Fatalf("tail saw %d, want %d", got, groups*size+groups)
	}
}

func exact(t *testing.T, l ledger.Ledger) {
	full := ledger.Entry{
		ID: id(1), Type: "test.happened", Version: 3,
		At: time.Date(2026, 10, 25, 2, 30, 0, 123456789, time.FixedZone("JST", 9*3600)),
		// Spaces, key order and big numbers: the bytes are the fact, not what they mean.
		Data: []byte("{ \"b\": 1.50, \"a\":\t[12345678901234567890],\"s\":\"\u2028 é \\u00e9 <>&\"}"),
		Meta: ledger.Meta{
			Actor: ledger.Actor{
				Tenant: "t1", Key: "k1", Client: "agent/1.0", Agent: "c-7", Person: "Zoë <z@example.test>", System: "worker/h1",
			},
			Command: "cmd", Correlation: "cor", Causation: "cau", Wiring: 4,
		},
	}
	bare := ledger.Entry{ID: id(2), Type: "test.happened", Version: 1, At: time.Unix(0, 0), Data: []byte(`null`)}
	mustAppend(t, l, "box-a", 0, full, bare)
	read, tailed := stream(t, l, "box-a", 0), tail(t, l, 0)
	for i, e := range []ledger.Entry{full, bare} {
		for _, r := range []ledger.Record{read[i], tailed[i]} {
			if r.ID != e.ID || r.Type != e.Type || r.Version != e.Version || r.Meta != e.Meta {
				t.Errorf("got  %+v\nwant %+v", r.Entry, e)
			}
			if !bytes.Equal(r.Data, e.Data) {
				t.Errorf("data came back as %q, want %q", r.Data, e.Data)
			}
			if !r.At.Equal(e.At) || r.At.Location() != time.UTC {
				t.Errorf("time came back as %v, want %v in UTC", r.At, e.At)
			}
		}
	}
}

// keeps: the ledger has its own copy of what it was given.
func keeps(t *testing.T, l ledger.Ledger) {
	e := entry(1)
	before := bytes.Clone(e.Data)
	mustAppend(t, l, "box-a", 0, e)
	for i := range e.Data {
		e.Data[i] = 'x'
	}
	if got := stream(t, l, "box-a", 0)[0].Data; !bytes.Equal(got, before) {
		t.Fatalf("data is %q: it followed the caller's buffer", got)
	}
}

func readCancelled(t *testing.T, l ledger.Ledger) {
	mustAppend(t, l, "box-a", 0, entries(1, 3)...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ends := func(what string, seq func(func(ledger.Record, error) bool)) {
		var last error
		for _, err := range seq {
			last = err
		}
		if !errors.Is(last, context.Canceled) {
			t.Errorf("%s ended with %v, want the context's error", what, last)
		}
	}
	ends("read", l.Read(ctx, "box-a", 0))
	ends("tail", l.Tail(ctx, 0))
	if _, err := l.Head(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("head: %v, want the context's error", err)
	}
}
