package decider_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/decider"
	"parallelsandbox/domain/ledger"
)

// A counter that refuses to go past its limit: the smallest aggregate with a rule.
type (
	add   struct{ N, Limit int }
	added struct{ N int }
	other struct{}
)

var errFull = errors.New("full")

var counter = decider.Decider[add, int, added]{
	Decide: func(sum int, c add) ([]added, error) {
		switch {
		case c.N == 0:
			return nil, nil
		case sum+c.N > c.Limit:
			return nil, errFull
		}
		return []added{{c.N}}, nil
	},
	Evolve: func(sum int, e added) int { return sum + e.N },
}

const stream ledger.Stream = "counter-1"

// store counts what is read of the ledger, and lets a test in before an append.
type store struct {
	decider.Store
	mu           sync.Mutex
	read         int
	appends      int
	beforeAppend func(n int)
	afterRead    func() // after a stream was read to its end
	appendErr    error
	readErr      error
}

func (s *store) Read(ctx context.Context, name ledger.Stream, after ledger.Revision) iter.Seq2[ledger.Record, error] {
	return func(yield func(ledger.Record, error) bool) {
		if s.readErr != nil {
			yield(ledger.Record{}, s.readErr)
			return
		}
		for r, err := range s.Store.Read(ctx, name, after) {
			s.mu.Lock()
			s.read++
			s.mu.Unlock()
			if !yield(r, err) {
				return
			}
		}
		s.mu.Lock()
		after := s.afterRead
		s.mu.Unlock()
		if after != nil {
			after()
		}
	}
}

func (s *store) Append(ctx context.Context, name ledger.Stream, at ledger.Revision, e ...ledger.Entry) (ledger.Revision, error) {
	s.mu.Lock()
	s.appends++
	n, before, err := s.appends, s.beforeAppend, s.appendErr
	s.mu.Unlock()
	if before != nil {
		before(n)
	}
	if err != nil {
		return 0, err
	}
	return s.Store.Append(ctx, name, at, e...)
}

func (s *store) reads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.read
	s.read = 0
	return n
}

type repository = decider.Repository[add, int, added]

func codec(t *testing.T) *ledger.Codec {
	t.Helper()
	c, err := ledger.NewCodec([]ledger.EventType{ledger.Event[added]("counter.added"), ledger.Event[other]("other.happened")})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func open(t *testing.T, size int) (*store, *repository) {
	t.Helper()
	s := &store{Store: new(memory.Ledger)}
	return s, decider.NewRepository(s, codec(t), counter, size)
}

var ids struct {
	sync.Mutex
	n int
}

func stamp(_ int, e *ledger.Entry) {
	ids.Lock()
	defer ids.Unlock()
	ids.n++
	e.ID, e.At = fmt.Sprint("id", ids.n), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
}

func execute(t *testing.T, r *repository, s ledger.Stream, n int) decider.Outcome[int, added] {
	t.Helper()
	out, err := r.Execute(t.Context(), s, add{n, 1 << 30}, stamp)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// append writes behind the repository's back, as another process does.
func appendTo(t *testing.T, s *store, name ledger.Stream, at ledger.Revision, event any) {
	t.Helper()
	e, err := codec(t).Encode(event)
	if err != nil {
		t.Fatal(err)
	}
	stamp(0, &e)
	if _, err := s.Store.Append(t.Context(), name, at, e); err != nil {
		t.Fatal(err)
	}
}

func TestACommandIsDecidedAndAppended(t *testing.T) {
	_, r := open(t, 10)
	out := execute(t, r, stream, 2)
	if out.State != 2 || out.Revision != 1 || len(out.Events) != 1 {
		t.Fatalf("outcome %+v", out)
	}
	if quiet := execute(t, r, stream, 0); quiet.State != 2 || quiet.Revision != 1 || quiet.Events != nil {
		t.Fatalf("nothing to do gave %+v", quiet)
	}
	out, err := r.Execute(t.Context(), stream, add{5, 6}, stamp)
	if !errors.Is(err, errFull) || out.State != 2 || out.Revision != 1 {
		t.Fatalf("a refusal gave %+v, %v; want the state it was decided against", out, err)
	}
}

// The stamp is told the state each event was decided against.
func TestStampSeesTheStateBeforeEachEvent(t *testing.T) {
	twice := counter
	twice.Decide = func(int, add) ([]added, error) { return []added{{1}, {10}}, nil }
	r := decider.NewRepository(new(memory.Ledger), codec(t), twice, 10)
	var seen []int
	_, err := r.Execute(t.Context(), stream, add{}, func(s int, e *ledger.Entry) {
		seen = append(seen, s)
		stamp(s, e)
	})
	if err != nil || fmt.Sprint(seen) != "[0 1]" {
		t.Fatalf("stamped with %v, %v", seen, err)
	}
}

func TestOnlyWhatCameAfterIsRead(t *testing.T) {
	s, r := open(t, 10)
	for range 50 {
		execute(t, r, stream, 1)
	}
	if n := s.reads(); n != 0 {
		t.Fatalf("50 commands read %d records of their own", n)
	}
	appendTo(t, s, stream, 50, added{7})
	if st, rev, err := r.Load(t.Context(), stream); st != 57 || rev != 51 || err != nil {
		t.Fatalf("loaded %d at %d, %v", st, rev, err)
	}
	if n := s.reads(); n != 1 {
		t.Fatalf("%d records read after one was appended elsewhere", n)
	}
	fresh := decider.NewRepository(s, codec(t), counter, 10)
	if st, _, err := fresh.Load(t.Context(), stream); st != 57 || err != nil || s.reads() != 51 {
		t.Fatalf("a fresh repository loads %d, %v", st, err)
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	s, r := open(t, 2)
	for _, name := range []ledger.Stream{"counter-1", "counter-2", "counter-3"} {
		execute(t, r, name, 1)
	}
	s.reads()
	for _, c := range []struct {
		name ledger.Stream
		want int
	}{{"counter-3", 0}, {"counter-2", 0}, {"counter-1", 1}, {"counter-2", 0}, {"counter-3", 1}} { // the least recently used goes
		if st, _, err := r.Load(t.Context(), c.name); st != 1 || err != nil {
			t.Fatalf("%s is %d, %v", c.name, st, err)
		}
		if n := s.reads(); n != c.want {
			t.Errorf("%s: %d records read, want %d", c.name, n, c.want)
		}
	}
}

// Somebody in another process wrote first: the command is decided again, on what is so now.
func TestAConflictIsDecidedAgain(t *testing.T) {
	s, r := open(t, 10)
	s.beforeAppend = func(n int) {
		if n <= 3 {
			appendTo(t, s, stream, ledger.Revision(n-1), added{100})
		}
	}
	if out := execute(t, r, stream, 1); out.State != 301 || out.Revision != 4 {
		t.Fatalf("outcome %+v", out)
	}
	s.beforeAppend = func(int) { appendTo(t, s, stream, 4, added{100}) }
	if _, err := r.Execute(t.Context(), stream, add{1, 350}, stamp); !errors.Is(err, errFull) {
		t.Fatalf("the rule was not asked again: %v", err)
	}
}

// Whoever always comes late hears of it in the end.
func TestConflictsWithoutEndAreReported(t *testing.T) {
	s, r := open(t, 10)
	var at ledger.Revision
	s.beforeAppend = func(int) {
		appendTo(t, s, stream, at, added{1})
		at++
	}
	_, err := r.Execute(t.Context(), stream, add{1, 1 << 30}, stamp)
	if _, ok := errors.AsType[*ledger.ConflictError](err); !ok {
		t.Fatalf("err = %v, want a *ledger.ConflictError", err)
	}
	if at < 2 || at > 100 {
		t.Errorf("tried %d times", at)
	}
}

func TestAFailedAppendLeavesNoTrace(t *testing.T) {
	s, r := open(t, 10)
	execute(t, r, stream, 1)
	s.appendErr = errors.New("the disk is full")
	out, err := r.Execute(t.Context(), stream, add{1, 9}, stamp)
	if !errors.Is(err, s.appendErr) || !strings.Contains(err.Error(), string(stream)) || out.State != 1 {
		t.Fatalf("outcome %+v, %v", out, err)
	}
	s.appendErr = nil
	if st, rev, err := r.Load(t.Context(), stream); st != 1 || rev != 1 || err != nil {
		t.Fatalf("loaded %d at %d, %v", st, rev, err)
	}
}

func TestAForeignEventIsAnError(t *testing.T) {
	s, r := open(t, 10)
	execute(t, r, stream, 1)
	appendTo(t, s, stream, 1, other{})
	if _, _, err := r.Load(t.Context(), stream); err == nil || !strings.Contains(err.Error(), "foreign event") {
		t.Fatalf("load: %v", err)
	}
	if _, err := r.Execute(t.Context(), stream, add{1, 9}, stamp); err == nil {
		t.Fatal("a command was carried out on a stream that cannot be read")
	}
}

func TestAReadThatFailsIsAnError(t *testing.T) {
	s, r := open(t, 10)
	execute(t, r, stream, 1)
	s.readErr = errors.New("the disk is gone")
	if _, _, err := r.Load(t.Context(), stream); !errors.Is(err, s.readErr) {
		t.Errorf("load: %v", err)
	}
	if _, _, err := r.LoadUntil(t.Context(), stream, func(ledger.Record) bool { return true }); !errors.Is(err, s.readErr) {
		t.Errorf("load until: %v", err)
	}
}

// However many ask at once, every command counts once and the rule holds; two repositories
// stand for two processes.
func TestConcurrentCommandsOnOneStream(t *testing.T) {
	s, first := open(t, 10)
	second := decider.NewRepository(s, codec(t), counter, 10)
	const callers, limit = 60, 40
	var wg sync.WaitGroup
	var mu sync.Mutex
	done, full := 0, 0
	for i := range callers {
		wg.Go(func() {
			r := first
			if i%10 == 0 {
				r = second
			}
			_, err := r.Execute(t.Context(), stream, add{1, limit}, stamp)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				done++
			case errors.Is(err, errFull):
				full++
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if done != limit || full != callers-limit {
		t.Errorf("%d done and %d refused, want %d and %d", done, full, limit, callers-limit)
	}
	for _, r := range []*repository{first, second} {
		if st, rev, err := r.Load(t.Context(), stream); st != limit || rev != limit || err != nil {
			t.Errorf("loaded %d at %d, %v", st, rev, err)
		}
	}
}

// Commands of one process do not lose races among themselves.
func TestCommandsOfOneProcessTakeTurns(t *testing.T) {
	s, r := open(t, 10)
	s.beforeAppend = func(int) { runtime.Gosched() }
	var wg sync.WaitGroup
	const callers = 100
	for range callers {
		wg.Go(func() {
			if _, err := r.Execute(t.Context(), stream, add{1, callers}, stamp); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if s.appends != callers {
		t.Errorf("%d commands took %d appends", callers, s.appends)
	}
}

// A load that was slow does not put back what is older than what is known by now.
func TestASlowLoadTakesNothingBack(t *testing.T) {
	s, r := open(t, 10)
	appendTo(t, s, stream, 0, added{1})
	reading, goOn := make(chan struct{}), make(chan struct{})
	s.afterRead = func() { close(reading); <-goOn }
	done := make(chan struct{})
	go func() {
		defer close(done)
		if st, _, err := r.Load(t.Context(), stream); st != 1 || err != nil {
			t.Errorf("the slow load gives %d, %v", st, err)
		}
	}()
	<-reading
	s.mu.Lock()
	s.afterRead = nil
	s.mu.Unlock()
	execute(t, r, stream, 10)
	close(goOn)
	<-done
	s.reads()
	if st, _, err := r.Load(t.Context(), stream); st != 11 || err != nil || s.reads() != 0 {
		t.Errorf("loaded %d, %v, and read what was known already", st, err)
	}
}

func TestLoadUntil(t *testing.T) {
	_, r := open(t, 10)
	for n := range 5 {
		execute(t, r, stream, n+1)
	}
	for upTo, want := range map[ledger.Revision]int{0: 0, 1: 1, 3: 6, 5: 15, 99: 15} {
		st, rev, err := r.LoadUntil(t.Context(), stream, func(rec ledger.Record) bool { return rec.Revision <= upTo })
		if st != want || rev != min(upTo, 5) || err != nil {
			t.Errorf("until %d: %d at %d, %v", upTo, st, rev, err)
		}
	}
	if st, _, err := r.Load(t.Context(), stream); st != 15 || err != nil {
		t.Errorf("looking back changed what is now: %d, %v", st, err)
	}
}

func TestACommandEndsWithItsContext(t *testing.T) {
	_, r := open(t, 10)
	execute(t, r, stream, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Execute(ctx, stream, add{1, 9}, stamp); !errors.Is(err, context.Canceled) {
		t.Fatalf("err = %v", err)
	}
}

// Events gives the events of a stream after a revision, and tells what cannot be read.
func TestEvents(t *testing.T) {
	s, r := open(t, 10)
	for n := range 4 {
		execute(t, r, stream, n+1)
	}
	var got []int
	for e, err := range r.Events(t.Context(), stream, 2) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.N)
	}
	if !slices.Equal(got, []int{3, 4}) {
		t.Errorf("events %v", got)
	}
	for range r.Events(t.Context(), stream, 0) {
		break // whoever has found what they looked for reads no further
	}
	appendTo(t, s, stream, 4, other{})
	var failed error
	for _, err := range r.Events(t.Context(), stream, 3) {
		failed = errors.Join(failed, err)
	}
	if failed == nil || !strings.Contains(failed.Error(), "foreign") {
		t.Errorf("a foreign event: %v", failed)
	}
	s.readErr = errors.New("no disk")
	failed = nil
	for _, err := range r.Events(t.Context(), stream, 0) {
		failed = errors.Join(failed, err)
	}
	if !errors.Is(failed, s.readErr) {
		t.Errorf("a read that fails: %v", failed)
	}
}
