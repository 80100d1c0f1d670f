package control

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/ledger"
)

// A caller that has lost an answer repeats the call under the same idempotency key, and is
// given what the first one led to. That it happened once is on the ledger, for as long as
// there is one: the key is in the id of the operation. Its answer is in the memory of this
// process only, for a while; whoever comes later is told what the ledger knows.
const (
	AnswerLife        = time.Hour
	MaxIdempotencyKey = 200      // bytes
	maxAnswers        = 64 << 20 // bytes kept of all answers together; the oldest goes first
	answerOverhead    = 512      // bytes that an answer takes besides what is in it
	maxTries          = 64       // under one key, of a command that never began
)

var (
	errOtherCall = fault.New(fault.Conflict, "this idempotencyKey was used for a different call on this box; use a new key for a new call, or repeat the first one unchanged")
	errTries     = fault.New(fault.Conflict, "the command was refused %d times under this idempotencyKey; use a new key", maxTries)
	errCutShort  = fault.New(fault.OutcomeUnknown, "the first call under this idempotencyKey broke off; sandbox_status says what was done, look before repeating it under a new key")

	// errNotedMeanwhile: another process was faster with the same operation.
	errNotedMeanwhile = errors.New("the operation was begun elsewhere")
)

func checkKey(key string) error {
	if len(key) > MaxIdempotencyKey {
		return fault.New(fault.Invalid, "idempotencyKey has at most %d bytes", MaxIdempotencyKey)
	}
	return nil
}

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// operation is the id of what a tool does in a box under a key. A command that was refused
// before it began may be tried again: that is another operation.
func operation(who Caller, id box.ID, tool, key string, try int) string {
	h := sha256.New()
	for _, part := range []string{"operation under an idempotency key", string(who.Tenant), string(id), tool, key, strconv.Itoa(try)} {
		fmt.Fprintf(h, "%d:%s,", len(part), part)
	}
	return idEncoding.EncodeToString(h.Sum(nil))[:20]
}

// sum tells two calls apart, also where they differ in what is not recorded.
func sum(call any) (digest [sha256.Size]byte) {
	text, err := json.Marshal(call)
	if err != nil {
		panic(err) // only plain values of ours come here
	}
	return sha256.Sum256(text)
}

// answers are those of calls under a key, under way or over. The zero value is ready.
type answers struct {
	mu    sync.Mutex
	by    map[string]*answered
	kept  []*answered // that are over, oldest first
	bytes int
}

type answered struct {
	operation string
	asked     [sha256.Size]byte
	over      chan struct{} // closed when the rest stands
	value     any
	err       error
	size      int
	until     time.Time

	waiting int // callers that have not gone; guarded by answers.mu
	stop    context.CancelFunc
}

// worth says whether the answer of a call is kept for later, and how many bytes it takes.
type worth struct {
	keep  bool
	bytes int
}

// once carries a call out under the id of its operation. Whoever makes the same call while it
// lasts waits for the same answer, and later ones are given it as long as it is kept. The
// call is withdrawn when all who wait for it have gone.
func once[V any](ctx context.Context, s *Service, operation string, asked [sha256.Size]byte, do func(context.Context) (V, worth, error)) (v V, repeated bool, err error) {
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	a, first := s.answers.join(operation, asked, stop, s.Now())
	if a.asked != asked {
		return v, false, errOtherCall
	}
	if !first {
		select {
		case <-a.over:
			v, _ = a.value.(V) // nil where there is an error
			return v, true, a.err
		case <-ctx.Done():
			s.answers.leave(a)
			return v, false, ctx.Err()
		}
	}
	defer context.AfterFunc(ctx, func() { s.answers.leave(a) })()
	var w worth
	a.err = errCutShort // what those who wait are told when do panics
	defer func() { s.answers.end(a, w, s.Now().Add(AnswerLife)) }()
	v, w, err = do(run)
	a.value, a.err = v, err
	return v, false, err
}

// join finds the call under this operation, or makes the caller the first.
func (s *answers) join(operation string, asked [sha256.Size]byte, stop context.CancelFunc, now time.Time) (a *answered, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(now)
	if a = s.by[operation]; a != nil {
		if a.asked == asked {
			a.waiting++
		}
		return a, false
	}
	if s.by == nil {
		s.by = map[string]*answered{}
	}
	a = &answered{operation: operation, asked: asked, over: make(chan struct{}), waiting: 1, stop: stop}
	s.by[operation] = a
	return a, true
}

func (s *answers) leave(a *answered) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.waiting--; a.waiting == 0 {
		a.stop()
	}
}

func (s *answers) end(a *answered, w worth, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(a.over)
	if !w.keep {
		delete(s.by, a.operation)
		return
	}
	a.size, a.until = w.bytes+answerOverhead, until
	s.kept, s.bytes = append(s.kept, a), s.bytes+a.size
	s.dropLocked(until.Add(-AnswerLife))
}

// dropLocked forgets what is too old, and the oldest of what is too much.
func (s *answers) dropLocked(now time.Time) {
	for len(s.kept) > 0 && (s.bytes > maxAnswers || !s.kept[0].until.After(now)) {
		delete(s.by, s.kept[0].operation)
		s.bytes -= s.kept[0].size
		s.kept[0], s.kept = nil, s.kept[1:]
	}
}

// noted is what the ledger knows of an operation.
type noted struct {
	begun box.Event         // nil where there was none
	end   *box.ExecFinished // of a command that has ended
}

// noted looks an operation up on the ledger, however long ago it was.
func (s *Service) noted(ctx context.Context, id box.ID, operation string) (n noted, err error) {
	st, _, err := s.Boxes.Load(ctx, box.StreamOf(id))
	if err != nil || !st.Noted(operation) && !st.Forgets() {
		return n, err
	}
	rev, ok, err := s.begun(ctx, id, operation)
	if err != nil || !ok {
		return n, err
	}
	for e, err := range s.Boxes.Events(ctx, box.StreamOf(id), rev-1) {
		if err != nil {
			return n, err
		}
		if n.begun == nil {
			n.begun = e
		}
		command, ok := n.begun.(box.ExecStarted)
		end, ended := e.(box.ExecFinished)
		if ended && ok && end.Step == command.Step {
			n.end = &end
		}
		if !ok || n.end != nil {
			break
		}
	}
	return n, nil
}

// begun asks the read models. Unlike other questions this one is not answered by half: an
// operation that is overlooked would be done twice.
func (s *Service) begun(ctx context.Context, id box.ID, operation string) (rev ledger.Revision, ok bool, err error) {
	head, err := s.Ledger.Head(ctx)
	if err != nil {
		return 0, false, err
	}
	wait, cancel := context.WithTimeout(ctx, viewsWithin)
	defer cancel()
	if err := s.Views.Reached(wait, head); err != nil {
		return 0, false, fault.New(fault.Unavailable, "whether this idempotencyKey was used before cannot be looked up just now; nothing was done, try again with the same key").Because(err)
	}
	return s.Views.Operation(ctx, id, operation)
}
