package main

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"parallelsandbox/cmd/internal/agent"
	"parallelsandbox/cmd/internal/wire"
)

// TestThePublicAdapterWaitsLongerThanItsWall: the client of the public adapter gives up on a
// connection that is silent for five minutes.
func TestThePublicAdapterWaitsLongerThanItsWall(t *testing.T) {
	t.Parallel() // it waits all of the time, so it is the first of those that wait
	l := serveHere(t, func(*wire.Config) {})
	a := l.public(t)
	id := startIn(t, a)
	answer := make(chan error, 1)
	var said struct{ Message string }
	began := time.Now()
	go func() {
		answer <- a.Call(context.WithoutCancel(t.Context()), "sandbox_takeover", map[string]any{"id": id, "note": "wait for it"}, &said)
	}()
	select {
	case err := <-answer:
		t.Fatalf("after %s: %+v, %v", time.Since(began), said, err)
	case <-time.After(6 * time.Minute):
	}
	body, err := agent.Request(t.Context(), http.MethodGet, l.URL+"/v1/takeovers?state=open", l.First.Secret, nil)
	if err != nil {
		t.Fatal(err)
	}
	var open struct{ Takeovers []struct{ Takeover string } }
	if err := json.Unmarshal([]byte(body), &open); err != nil || len(open.Takeovers) != 1 {
		t.Fatalf("%s, %v", body, err)
	}
	back := strings.NewReader(`{"message": "here it is"}`)
	if _, err := agent.Request(t.Context(), http.MethodPost, l.URL+"/v1/takeovers/"+open.Takeovers[0].Takeover+"/return", l.First.Secret, back); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; err != nil || said.Message != "here it is" {
		t.Errorf("%+v, %v", said, err)
	}
	stopIn(t, a, id)
}
