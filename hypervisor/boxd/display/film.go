package display

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"parallelsandbox/hypervisor/boxd"
	"parallelsandbox/hypervisor/boxd/process"
	"parallelsandbox/hypervisor/boxd/protocol"
)

// films are the recordings of a box: one that runs at most, and those that were not
// discarded yet.
type films struct {
	mu  sync.Mutex
	all map[string]*film
}

// film is one recording. The recorder writes it in pieces that can each be read, so that
// what was written before anything failed is not lost.
type film struct {
	id     string
	raw    string // what the recorder writes
	whole  string // what players like best, made at the end
	proc   *process.Process
	said   *tail
	first  chan struct{} // closed when the first picture is in
	ended  chan struct{} // closed when the recorder has ended
	finish sync.Mutex    // held while whole is made

	mu   sync.Mutex
	long time.Duration
}

const (
	filmRate = 15 // pictures in a second
	// filmGap is the longest a picture of the film stands still for a box that did: what
	// was frozen for an hour is not an hour of film.
	filmGap = "1"
)

// Record begins a recording and returns when its first picture is taken.
func (s *Screen) Record(ctx context.Context, id string) error {
	if err := protocol.CheckFilm(id); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, protocol.FilmStart)
	defer cancel()
	if err := s.Await(ctx); err != nil {
		return err
	}
	f, err := s.begin(id)
	if err != nil {
		return err
	}
	select {
	case <-f.first:
		return nil
	case <-f.ended:
	case <-ctx.Done():
	}
	select {
	case <-f.first: // it began, and has ended since
		return nil
	default:
	}
	_ = s.Discard(id)
	return protocol.Errorf(protocol.Internal, "the recording did not begin: %s", f.said.last())
}

// begin starts the recorder, unless it was under this id.
func (s *Screen) begin(id string) (*film, error) {
	s.films.mu.Lock()
	defer s.films.mu.Unlock()
	if f := s.films.all[id]; f != nil {
		return f, nil
	}
	for _, f := range s.films.all {
		if f.runs() {
			return nil, protocol.Errorf(protocol.Conflict, "the display is being recorded already, as %s; end that recording first", f.id)
		}
	}
	if err := os.MkdirAll(s.at.Films, 0o755); err != nil {
		return nil, fmt.Errorf("display: the directory of recordings: %w", err)
	}
	f := &film{
		id: id, raw: filepath.Join(s.at.Films, id+".part.mp4"), whole: filepath.Join(s.at.Films, id+".mp4"),
		first: make(chan struct{}), ended: make(chan struct{}),
	}
	said, out, err := newTail()
	if err != nil {
		return nil, err
	}
	defer syscall.Close(out)
	progress, tell, err := process.Pipe()
	if err != nil {
		return nil, err
	}
	defer syscall.Close(tell)
	f.said = said
	if f.proc, err = s.start(out, []int{tell}, environment(), s.at.Recorder, recorderArgs(f.raw)...); err != nil {
		progress.Close()
		return nil, fmt.Errorf("display: start the recorder: %w", err)
	}
	s.films.all[id] = f
	go f.follow(progress)
	return f, nil
}

func recorderArgs(to string) []string {
	return []string{
		"-nostdin", "-hide_banner", "-loglevel", "error", "-y", "-progress", "pipe:3", "-stats_period", "0.2",
		"-f", "x11grab", "-framerate", strconv.Itoa(filmRate), "-i", Name,
		// Sizes are made even, which the format asks for, and times of rest are cut out.
		"-vf", "crop=trunc(iw/2)*2:trunc(ih/2)*2,setpts='if(eq(N,0),0,PREV_OUTPTS+min(PTS-PREV_INPTS," + filmGap + "/TB))'",
		"-fps_mode", "vfr", "-t", strconv.Itoa(int(protocol.FilmTime.Seconds())), "-fs", strconv.Itoa(protocol.FilmBytes),
		"-c:v", "libx264", "-preset", "ultrafast", "-tune", "zerolatency", "-crf", "26", "-g", strconv.Itoa(2 * filmRate),
		"-threads", "2", "-pix_fmt", "yuv420p",
		"-movflags", "+frag_keyframe+empty_moov+default_base_moof", "-frag_duration", "1000000", "-flush_packets", "1",
		"-f", "mp4", to,
	}
}

func (f *film) runs() bool {
	select {
	case <-f.ended:
		return false
	default:
		return true
	}
}

// follow reads what the recorder tells of its progress, until it ends.
func (f *film) follow(progress *os.File) {
	defer progress.Close()
	var once sync.Once
	for lines := bufio.NewScanner(progress); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "=")
		n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		switch {
		case err != nil || n <= 0:
		case name == "frame":
			once.Do(func() { close(f.first) })
		case name == "out_time_us":
			f.mu.Lock()
			f.long = time.Duration(n) * time.Microsecond
			f.mu.Unlock()
		}
	}
	<-f.proc.Done()
	close(f.ended)
}

// stop ends the recorder, which writes what it has left.
func (f *film) stop(patience time.Duration) {
	if f.runs() {
		_ = syscall.Kill(f.proc.PID, syscall.SIGINT)
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case <-f.ended:
	case <-t.C:
		_ = syscall.Kill(f.proc.PID, syscall.SIGKILL)
		<-f.ended
	}
}

// stopPatience is how long a recorder may take to write what it has left. What is not
// written by then is lost, a second of film at most.
const stopPatience = 10 * time.Second

// end ends every recorder.
func (l *films) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.all {
		f.stop(stopPatience)
	}
}

func (l *films) find(id string) *film {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all[id]
}

// Finish ends a recording and opens it.
func (s *Screen) Finish(ctx context.Context, id string) (boxd.Film, error) {
	f := s.films.find(id)
	if f == nil {
		return boxd.Film{}, protocol.Errorf(protocol.NotFound, "there is no recording %q in this box", id)
	}
	f.stop(stopPatience)
	if err := s.complete(ctx, f); err != nil {
		return boxd.Film{}, err
	}
	file, err := os.Open(f.whole)
	if err != nil {
		return boxd.Film{}, protocol.Errorf(protocol.NotFound, "the recording %q is gone from the disk of the box", id)
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return boxd.Film{}, fmt.Errorf("display: the recording: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return boxd.Film{Body: file, Size: info.Size(), Duration: f.long}, nil
}

// complete makes the file whose index comes first, as players on the web want it.
func (s *Screen) complete(ctx context.Context, f *film) error {
	f.finish.Lock()
	defer f.finish.Unlock()
	if _, err := os.Stat(f.whole); err == nil {
		return nil
	}
	said, out, err := newTail()
	if err != nil {
		return err
	}
	part := f.whole + ".new"
	p, err := s.start(out, nil, environment(), s.at.Recorder, "-nostdin", "-hide_banner", "-loglevel", "error", "-y",
		"-i", f.raw, "-c", "copy", "-movflags", "+faststart", "-f", "mp4", part)
	_ = syscall.Close(out)
	if err != nil {
		return fmt.Errorf("display: start the recorder: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, protocol.FilmEnd)
	defer cancel()
	select {
	case <-p.Done():
	case <-ctx.Done():
		_ = syscall.Kill(p.PID, syscall.SIGKILL)
		<-p.Done()
	}
	if code, _ := p.Exit(); code != 0 {
		_ = os.Remove(part)
		return protocol.Errorf(protocol.NotFound, "the recording holds nothing that can be played: %s; %s", said.last(), f.said.last())
	}
	if err := os.Rename(part, f.whole); err != nil {
		return fmt.Errorf("display: the recording: %w", err)
	}
	return os.Remove(f.raw)
}

// Discard ends a recording and deletes it.
func (s *Screen) Discard(id string) error {
	s.films.mu.Lock()
	f := s.films.all[id]
	delete(s.films.all, id)
	s.films.mu.Unlock()
	if f == nil {
		return nil
	}
	f.stop(0)
	f.finish.Lock()
	defer f.finish.Unlock()
	for _, path := range []string{f.raw, f.whole} {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("display: delete the recording: %w", err)
		}
	}
	return nil
}
