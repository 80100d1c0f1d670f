package mcp

import (
	"container/list"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/server"

	"parallelsandbox/domain/control"
)

// sessions makes and checks session ids, and remembers who was here lately.
//
// An id carries what it stands for: a nonce, the name of the client, and an HMAC over
// both and the API key it was made for. So it holds after a restart and on another
// replica, and is nobody else's. What is remembered beside, such as events, is only a
// convenience that can go at any time.
type sessions struct {
	key    []byte
	idle   time.Duration
	max    int
	forget func(id string) // drops what others keep for a session

	mu    sync.Mutex
	live  map[string]*list.Element // of *session
	order list.List                // the one used last in front
	ended map[string]bool          // closed by their clients; a bounded memory of it
	queue []string                 // of ended, oldest first
}

type session struct {
	id    string
	calls int // requests under way
	used  time.Time
}

const (
	sessionHeader = "Mcp-Session-Id"
	maxEnded      = 4096
)

var errSession = errors.New("this session id is not one of this API key")

func newSessions(cfg Config, forget func(string)) *sessions {
	return &sessions{
		key: cfg.SessionKey, idle: cfg.SessionIdle, max: cfg.MaxSessions, forget: forget,
		live: map[string]*list.Element{}, ended: map[string]bool{},
	}
}

var b64 = base64.RawURLEncoding

func (s *sessions) mint(who control.Caller, client string) string {
	nonce := rand.Text()[:20]
	return strings.Join([]string{nonce, b64.EncodeToString([]byte(client)), s.mac(who, nonce, client)}, ".")
}

// check returns the name of the client that a session id was made for.
func (s *sessions) check(who control.Caller, id string) (client string, err error) {
	parts := strings.Split(id, ".")
	if len(parts) != 3 {
		return "", errSession
	}
	raw, err := b64.DecodeString(parts[1])
	if err != nil || !hmac.Equal([]byte(parts[2]), []byte(s.mac(who, parts[0], string(raw)))) {
		return "", errSession
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended[id] {
		return "", errSession
	}
	return string(raw), nil
}

func (s *sessions) mac(who control.Caller, nonce, client string) string {
	h := hmac.New(sha256.New, s.key)
	for _, p := range []string{"mcp session", string(who.Tenant), who.Key, nonce, client} {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return b64.EncodeToString(h.Sum(nil)[:20])
}

// enter notes a request of a session; leave must follow.
func (s *sessions) enter(id string) {
	s.mu.Lock()
	at := s.live[id]
	if at == nil {
		at = s.order.PushFront(&session{id: id})
		s.live[id] = at
	}
	s.order.MoveToFront(at)
	at.Value.(*session).calls++
	at.Value.(*session).used = time.Now()
	gone := s.excess()
	s.mu.Unlock()
	s.forgetAll(gone)
}

func (s *sessions) leave(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at := s.live[id]; at != nil {
		s.order.MoveToFront(at)
		at.Value.(*session).calls--
		at.Value.(*session).used = time.Now()
	}
}

// end closes a session for good.
func (s *sessions) end(id string) {
	s.mu.Lock()
	if !s.ended[id] {
		s.ended[id] = true
		s.queue = append(s.queue, id)
		if len(s.queue) > maxEnded {
			delete(s.ended, s.queue[0])
			s.queue = s.queue[1:]
		}
	}
	if at := s.live[id]; at != nil {
		s.order.Remove(at)
		delete(s.live, id)
	}
	s.mu.Unlock()
	s.forget(id)
}

// sweep forgets sessions that have not been used for long.
func (s *sessions) sweep() {
	s.mu.Lock()
	before := time.Now().Add(-s.idle)
	gone := s.drop(func(x *session) bool { return x.used.Before(before) })
	s.mu.Unlock()
	s.forgetAll(gone)
}

// clear forgets all of them.
func (s *sessions) clear() {
	s.mu.Lock()
	gone := slices.Collect(maps.Keys(s.live))
	clear(s.live)
	s.order.Init()
	s.mu.Unlock()
	s.forgetAll(gone)
}

// excess takes out those over the limit, least recently used first.
func (s *sessions) excess() []string {
	over := len(s.live) - s.max
	return s.drop(func(*session) bool { over--; return over >= 0 })
}

// drop takes out sessions without a request under way, as long as the next one is to go.
func (s *sessions) drop(next func(*session) bool) (gone []string) {
	for at := s.order.Back(); at != nil; {
		x := at.Value.(*session)
		before := at.Prev()
		if x.calls == 0 {
			if !next(x) {
				break
			}
			s.order.Remove(at)
			delete(s.live, x.id)
			gone = append(gone, x.id)
		}
		at = before
	}
	return gone
}

func (s *sessions) forgetAll(ids []string) {
	for _, id := range ids {
		s.forget(id)
	}
}

func (s *sessions) remembered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.live)
}

// visit is what one request brings along.
type visit struct {
	who     control.Caller
	client  string // as it names itself in initialize
	session string // set when initialize makes one
}

type visitKey struct{}

func visitOf(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

// ResolveSessionIdManager implements server.SessionIdManagerResolver: ids belong to the
// caller of the request. There is none when mcp-go tidies up by itself.
func (s *sessions) ResolveSessionIdManager(r *http.Request) server.SessionIdManager {
	if r == nil || visitOf(r.Context()) == nil {
		return &issuer{s: s, visit: &visit{}}
	}
	return &issuer{s: s, visit: visitOf(r.Context())}
}

// issuer makes and checks ids for one request.
type issuer struct {
	s     *sessions
	visit *visit
}

func (i *issuer) Generate() string {
	i.visit.session = i.s.mint(i.visit.who, i.visit.client)
	i.s.enter(i.visit.session)
	return i.visit.session
}

func (i *issuer) Validate(id string) (terminated bool, err error) {
	_, err = i.s.check(i.visit.who, id)
	return false, err
}

// Terminate allows: who may ask is checked before.
func (i *issuer) Terminate(string) (notAllowed bool, err error) { return false, nil }

// forget has mcp-go drop what it keeps for a session. Its one way to be told is the
// request a client makes.
func (d *Door) forget(id string) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodDelete, "/mcp", nil)
	if err != nil {
		d.cfg.Log.Error("session not forgotten", "err", err)
		return
	}
	r.Header.Set(sessionHeader, id)
	d.inner.ServeHTTP(&nobody{header: http.Header{}}, r)
}

// nobody listens to an answer.
type nobody struct{ header http.Header }

func (n *nobody) Header() http.Header         { return n.header }
func (n *nobody) Write(p []byte) (int, error) { return len(p), nil }
func (n *nobody) WriteHeader(int)             {}
