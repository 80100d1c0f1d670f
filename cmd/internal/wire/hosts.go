package wire

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"parallelsandbox/adapters/notice"
	"parallelsandbox/adapters/sqlite"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/host"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/policy"
)

// lostAfter is how long a host may be silent. A restart of the service takes a few
// seconds; a host that was only slow loses all its boxes.
const lostAfter = time.Minute

// watchHosts says that this host is alive, gives up those that are silent, and heeds
// reclaim notices.
func (r *Running) watchHosts(ctx context.Context) error {
	c := r.config
	beats := sqlite.Heartbeats{Path: c.path("heartbeats.db")}
	beat := &policy.Beat{Host: r.Host, Beats: beats, Log: logger(c.Log, "heartbeat"), Now: now}
	hosts := &policy.Hosts{
		Self: r.Host, LostAfter: lostAfter, Hosts: r.Hosts, Boxes: r.Boxes, All: r.Views.Hosts,
		Live:  func(ctx context.Context, id host.ID) ([]box.ID, error) { return r.liveBoxes(ctx, string(id)) },
		Beats: beats, Log: logger(c.Log, "hosts"), Now: now, NewID: NewID,
	}
	r.opened.add(background(ctx, c.Log, "heartbeat", beat.Run))
	r.opened.add(background(ctx, c.Log, "hosts", hosts.Run))
	if c.ReclaimNotice == "" {
		return nil
	}
	watch, err := notice.New(c.ReclaimNotice, logger(c.Log, "notice"), now)
	if err != nil {
		return err
	}
	tell := func(ctx context.Context, n notice.Notice) error {
		_, err := r.reclaim(ctx, r.Host, n.Reason, n.Deadline, "notice")
		return err
	}
	r.opened.add(background(ctx, c.Log, "notice", func(ctx context.Context) error { return watch.Run(ctx, tell) }))
	return nil
}

// reclaim puts a reclaim notice on the ledger. A service that runs finds it there.
func (s *Stores) reclaim(ctx context.Context, id host.ID, reason string, deadline time.Time, system string) (host.State, error) {
	command := NewID()
	out, err := s.Hosts.Execute(ctx, host.StreamOf(id), host.NoticeReclaim{Reason: reason, Deadline: deadline, At: now()}, func(_ host.State, e *ledger.Entry) {
		e.ID, e.At = NewID(), now()
		e.Meta = ledger.Meta{Actor: ledger.Actor{System: system}, Command: command}
	})
	return out.State, err
}

// HostName is the name that the service of this data directory goes by on the ledger.
func (c Config) HostName() (host.ID, error) {
	text, err := os.ReadFile(c.path("host.id"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("no service has run in %s yet; name a host with --host, or the data directory with --data", c.Data)
	}
	return host.ID(strings.TrimSpace(string(text))), err
}

// Reclaim announces that a host is taken away after a while.
func (o *Operator) Reclaim(ctx context.Context, id host.ID, in time.Duration, reason string) (host.State, error) {
	if in < 0 {
		return host.State{}, fault.New(fault.Invalid, "a host cannot have been taken away %s ago", -in)
	}
	return o.stores.reclaim(ctx, id, reason, now().Add(in), "operator")
}

// HostRow is a host, and how many machines it carries.
type HostRow struct {
	host.State
	Boxes, Spares int
}

// Hosts lists every host that ever joined. It reads the whole ledger: the read models
// belong to the service that may be running.
func (o *Operator) Hosts(ctx context.Context) ([]HostRow, error) {
	by := map[host.ID]*HostRow{}
	on := map[ledger.Stream]host.ID{}
	spare := map[ledger.Stream]bool{}
	for r, err := range o.stores.Ledger.Tail(ctx, 0) {
		if err != nil {
			return nil, err
		}
		v, err := o.stores.Codec.Decode(r.Entry)
		if err != nil {
			return nil, fmt.Errorf("position %d: %w", r.Position, err)
		}
		switch e := v.(type) {
		case host.Event:
			id := host.ID(strings.TrimPrefix(string(r.Stream), string(host.StreamOf(""))))
			if by[id] == nil {
				by[id] = &HostRow{}
			}
			by[id].State = host.Evolve(by[id].State, e)
		case box.SpareRequested:
			on[r.Stream], spare[r.Stream] = host.ID(e.Host), true
		case box.Requested:
			on[r.Stream] = host.ID(e.Host)
		case box.Claimed:
			delete(spare, r.Stream)
		case box.BootFailed, box.Terminated, box.Interrupted:
			delete(on, r.Stream)
			delete(spare, r.Stream)
		}
	}
	for stream, id := range on {
		if row := by[id]; row != nil && spare[stream] {
			row.Spares++
		} else if row != nil {
			row.Boxes++
		}
	}
	rows := make([]HostRow, 0, len(by))
	for _, row := range by {
		rows = append(rows, *row)
	}
	slices.SortFunc(rows, func(a, b HostRow) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return rows, nil
}
