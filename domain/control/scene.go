package control

import (
	"context"
	"errors"
	"net"
	"slices"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/tenant"
)

// ScenePort is where a scene is served in its box, and under which revision of the
// wiring: after a change the same port may lead elsewhere.
type ScenePort struct {
	Port   int
	Wiring int
}

// Scene finds the port of a box's service for a visitor of its scene URL, who is a call
// until done. Whoever holds the URL may look: the id cannot be guessed. An unknown box and
// a foreign one do not differ. A frozen box is woken, one that has ended is not.
func (s *Service) Scene(ctx context.Context, id box.ID, service string) (at ScenePort, done func(), err error) {
	st, _, err := s.Boxes.Load(ctx, box.StreamOf(id))
	if err != nil {
		return ScenePort{}, nil, err
	}
	if err := box.Usable(st); err != nil && !errors.Is(err, box.ErrFrozen) {
		return ScenePort{}, nil, err
	}
	i := slices.IndexFunc(st.Services, func(x box.Service) bool { return service == "" || x.Name == service })
	switch {
	case i < 0 && service == "":
		return ScenePort{}, nil, fault.New(fault.NotFound, "the box was started without services, so it has no scene")
	case i < 0:
		return ScenePort{}, nil, fault.New(fault.NotFound, "the box has no service %q", service)
	}
	visitor := Caller{Tenant: tenant.ID(st.Tenant), Client: "scene"}
	if done, err = s.enter(ctx, visitor, id, "scene"); err != nil {
		return ScenePort{}, nil, err
	}
	return ScenePort{Port: st.Services[i].Port, Wiring: st.WiringRevision}, done, nil
}

// DialScene opens a byte stream to a port of a box. In mode external the box's own
// listener forwards it.
func (s *Service) DialScene(ctx context.Context, id box.ID, port int) (net.Conn, error) {
	return s.Guests.Dial(ctx, id, port)
}
