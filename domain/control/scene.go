package control

import (
	"context"
	"net"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/fault"
)

// Scene finds the port of a box's service for a visitor of its scene URL. Whoever holds
// the URL may look: the id cannot be guessed. An unknown box and a foreign one do not differ.
func (s *Service) Scene(ctx context.Context, id box.ID, service string) (port int, err error) {
	st, _, err := s.Boxes.Load(ctx, box.StreamOf(id))
	if err != nil {
		return 0, err
	}
	if err := box.Usable(st); err != nil {
		return 0, err
	}
	for _, x := range st.Services {
		if service == "" || x.Name == service {
			return x.Port, nil
		}
	}
	if service == "" {
		return 0, fault.New(fault.NotFound, "the box was started without services, so it has no scene")
	}
	return 0, fault.New(fault.NotFound, "the box has no service %q", service)
}

// DialScene opens a byte stream to a port of a box. In mode external the box's own
// listener forwards it.
func (s *Service) DialScene(ctx context.Context, id box.ID, port int) (net.Conn, error) {
	return s.Guests.Dial(ctx, id, port)
}
