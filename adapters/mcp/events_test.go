package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/server"
)

func messageOf(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n) + `"`) }

func TestEventsFollowOneAnother(t *testing.T) {
	e := newEvents(1 << 20)
	s := e.open("a", "one")
	more, end, news, err := e.after("a", "one-0")
	if len(more) != 0 || end || err != nil {
		t.Fatalf("%v %v %v", more, end, err)
	}
	e.add(s, json.RawMessage(`1`), false)
	<-news
	id := e.add(s, json.RawMessage(`2`), true)
	more, end, _, err = e.after("a", "one-0")
	if err != nil || !end || len(more) != 2 || more[1].id != id || string(more[1].message) != "2" {
		t.Errorf("%v %v %v", more, end, err)
	}
	if more, _, _, _ = e.after("a", "one-1"); len(more) != 1 {
		t.Errorf("after the first: %v", more)
	}
	for _, bad := range []string{"one-3", "one--1", "one", "two-0", "", "-", "one-x"} {
		if _, _, _, err := e.after("a", bad); !errors.Is(err, server.ErrUnknownEventID) {
			t.Errorf("event %q: %v", bad, err)
		}
	}
	if _, _, _, err := e.after("b", "one-0"); !errors.Is(err, server.ErrUnknownEventID) {
		t.Errorf("the stream of another session: %v", err)
	}
}

func TestEventsStayWithinTheirLimit(t *testing.T) {
	const limit = 100 << 10
	e := newEvents(limit)
	open := e.open("a", "under way")
	e.add(open, messageOf(1000), false)
	for i := range 1000 {
		s := e.open(fmt.Sprint("session", i), fmt.Sprint("s", i))
		e.add(s, messageOf(5000), true)
		if e.bytes() > limit {
			t.Fatalf("%d bytes after %d streams", e.bytes(), i)
		}
	}
	if _, _, _, err := e.after("a", "under way-0"); err != nil {
		t.Errorf("a stream under way went before those that have ended: %v", err)
	}
	if _, _, _, err := e.after("session999", "s999-0"); err != nil {
		t.Errorf("the newest stream: %v", err)
	}
	if _, _, _, err := e.after("session0", "s0-0"); !errors.Is(err, server.ErrUnknownEventID) {
		t.Errorf("the oldest stream: %v", err)
	}
	// Streams under way are bounded too, and one alone keeps its newest.
	for i := range 1000 {
		e.add(e.open("b", fmt.Sprint("b", i)), messageOf(5000), false)
	}
	long := e.open("c", "long")
	last := ""
	for range 1000 {
		last = e.add(long, messageOf(5000), false)
	}
	if e.bytes() > limit {
		t.Errorf("%d bytes", e.bytes())
	}
	if last != "long-1000" {
		t.Errorf("the last event is %s", last)
	}
	if more, _, _, err := e.after("c", "long-999"); err != nil || len(more) != 1 {
		t.Errorf("%v %v", more, err)
	}
	if _, _, _, err := e.after("c", "long-1"); !errors.Is(err, server.ErrUnknownEventID) {
		t.Errorf("an event that went: %v", err)
	}
	// An answer larger than everything is still kept, alone.
	big := e.open("d", "big")
	e.add(big, messageOf(2*limit), true)
	if more, end, _, err := e.after("d", "big-0"); err != nil || !end || len(more) != 1 {
		t.Errorf("the large answer: %v", err)
	}
	e.open("e", "next")
	if e.bytes() > limit {
		t.Errorf("%d bytes after the large answer", e.bytes())
	}
}

func TestAStreamThatWentTakesNoMore(t *testing.T) {
	e := newEvents(10 << 10)
	s := e.open("a", "one")
	if err := e.PurgeSession(context.Background(), "a"); err != nil {
		t.Fatal(err)
	}
	if id := e.add(s, messageOf(100), true); id != "one-1" {
		t.Errorf("its event is %s", id)
	}
	if e.bytes() != 0 || len(e.streams) != 0 || len(e.sessions) != 0 || e.order.Len() != 0 {
		t.Errorf("%d bytes, %d streams are kept", e.bytes(), len(e.streams))
	}
}

func TestEventsServeTheLibrary(t *testing.T) {
	ctx := context.Background()
	e := newEvents(1 << 20)
	var ids []string
	for i := range 3 {
		id, err := e.StoreEvent(ctx, "a", "2f1c-uuid", json.RawMessage(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	var heard []string
	stream, err := e.ReplayEventsAfter(ctx, "a", ids[0], func(id string, m json.RawMessage) error {
		heard = append(heard, id+"="+string(m))
		return nil
	})
	if err != nil || stream != "2f1c-uuid" || fmt.Sprint(heard) != "[2f1c-uuid-2=1 2f1c-uuid-3=2]" {
		t.Errorf("%s %v %v", stream, heard, err)
	}
	stop := errors.New("stop")
	if _, err := e.ReplayEventsAfter(ctx, "a", ids[0], func(string, json.RawMessage) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
	if _, err := e.ReplayEventsAfter(ctx, "b", ids[0], nil); !errors.Is(err, server.ErrUnknownEventID) {
		t.Error(err)
	}
}
