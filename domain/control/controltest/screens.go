package controltest

import (
	"bytes"
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
)

var _ control.Screens = (*Screens)(nil)

// Screens pretends to be the displays of boxes. A picture says what it is of, a recording
// says its id, and what is typed is remembered.
type Screens struct {
	mu        sync.Mutex
	fails     error
	typed     map[box.ID][]control.Action
	recording map[box.ID]string
	discarded []string
}

// NewScreens returns displays that answer.
func NewScreens() *Screens {
	return &Screens{typed: map[box.ID][]control.Action{}, recording: map[box.ID]string{}}
}

// Fail has every call fail from now on; nil mends it.
func (s *Screens) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = err
}

// Typed lists what was done on the display of a box.
func (s *Screens) Typed(id box.ID) []control.Action {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.typed[id])
}

// Recording is what is recorded of a box now.
func (s *Screens) Recording(id box.ID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recording[id]
}

// Discarded lists the recordings that boxes were told to delete.
func (s *Screens) Discarded() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.discarded)
}

func (s *Screens) failing() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fails
}

// Screen implements control.Screens: it echoes what a viewer may write.
func (s *Screens) Screen(ctx context.Context, _ box.ID, mayType func() bool) (io.ReadWriteCloser, error) {
	if err := s.failing(); err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	return &echo{r, w, mayType}, nil
}

type echo struct {
	*io.PipeReader
	w       *io.PipeWriter
	mayType func() bool
}

// Write sends back what came if the viewer may type, and a full stop otherwise.
func (e *echo) Write(p []byte) (int, error) {
	if !e.mayType() {
		_, err := e.w.Write([]byte("."))
		return len(p), err
	}
	return e.w.Write(p)
}

func (e *echo) Close() error { e.w.Close(); return e.PipeReader.Close() }

// Shot implements control.Screens.
func (s *Screens) Shot(_ context.Context, id box.ID) (control.Picture, error) {
	return control.Picture{PNG: []byte("screen of " + id), Width: 1280, Height: 800}, s.failing()
}

// Page implements control.Screens.
func (s *Screens) Page(_ context.Context, _ box.ID, url string) (control.Picture, error) {
	return control.Picture{PNG: []byte("page " + url), Width: 1280, Height: 800}, s.failing()
}

// Input implements control.Screens.
func (s *Screens) Input(_ context.Context, id box.ID, actions []control.Action) error {
	if err := s.failing(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.typed[id] = append(s.typed[id], actions...)
	return nil
}

// Record implements control.Screens.
func (s *Screens) Record(_ context.Context, id box.ID, recording string) error {
	if err := s.failing(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recording[id] = recording
	return nil
}

// Finish implements control.Screens.
func (s *Screens) Finish(_ context.Context, id box.ID, recording string) (control.Film, error) {
	if err := s.failing(); err != nil {
		return control.Film{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recording[id] != recording {
		return control.Film{}, fault.New(fault.NotFound, "the box has no such recording")
	}
	film := []byte("film " + recording)
	return control.Film{Body: io.NopCloser(bytes.NewReader(film)), Size: int64(len(film)), Duration: 2 * time.Second}, nil
}

// Discard implements control.Screens.
func (s *Screens) Discard(_ context.Context, id box.ID, recording string) error {
	if err := s.failing(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.recording, id)
	s.discarded = append(s.discarded, recording)
	return nil
}
