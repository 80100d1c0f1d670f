package control

import (
	"context"
	"net"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/fault"
)

// ScenePort is where a scene is served in its box, and under which revision of the
// wiring: after a change the same port may lead elsewhere.
type ScenePort struct {
	Port   int
	Wiring int
}

// Scene finds the port of a box's service for a visitor of its scene URL. Whoever holds
// the URL may look: the id cannot be guessed. An unknown box and a foreign one do not differ.
func (s *Service) Scene(ctx context.Context, id box.ID, service string) (ScenePort, error) {
	st, _, err := s.Boxes.Load(ctx, box.StreamOf(id))
	if err != nil {
		return ScenePort{}, err
	}
	if err := box.Usable(st); err != nil {
		return ScenePort{}, err
	}
	for _, x := range st.Services {
		if service == "" || x.Name == service {
			return ScenePort{Port: x.Port, Wiring: st.WiringRevision}, nil
		}
	}
	if service == "" {
		return ScenePort{}, fault.New(fault.NotFound, "the box was started without services, so it has no scene")
	}
	return ScenePort{}, fault.New(fault.NotFound, "the box has no service %q", service)
}

// DialScene opens a byte stream to a port of a box. In mode external the box's own
// listener forwards it.
func (s *Service) DialScene(ctx context.Context, id box.ID, port int) (net.Conn, error) {
	return s.Guests.Dial(ctx, id, port)
}
