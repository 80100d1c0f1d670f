package control

import (
	"context"
	"crypto/hmac"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/tenant"
)

// How long a link to the screen works, a seat lasts, and a person can be disconnected
// without losing it.
const (
	TakeoverLinkLife = 24 * time.Hour
	SeatLife         = 4 * time.Hour
	SeatGrace        = 20 * time.Second
)

var (
	errLinkExpired = fault.New(fault.Unauthenticated, "this link has expired; ask the agent for a new one: sandbox_status gives it as takeoverUrl")
	errSeat        = fault.New(fault.Unauthenticated, "this seat at the screen is not ours, is for another box, or its time is up; open a new link, or take the keyboard in the app")
	errNotSeated   = fault.New(fault.Locked, "only who holds the takeover can use mouse and keyboard; take the keyboard first")
)

// TakeoverLink is what the address of a takeover carries. It works until the second
// Expires, and once.
type TakeoverLink struct {
	Box       box.ID
	Nonce     string
	Expires   string // seconds since 1970, as written in the address
	Signature string
}

// Takeover signs a link to the screen of a box that works once.
func (l *Links) Takeover(id box.ID, nonce string, now time.Time) string {
	exp := strconv.FormatInt(now.Add(TakeoverLinkLife).Unix(), 10)
	q := url.Values{"nonce": {nonce}, "expires": {exp}, "signature": {l.sign("takeover", string(id), nonce, exp)}}
	return fmt.Sprintf("%s/boxes/%s/takeover?%s", l.AppBase, id, q.Encode())
}

// CheckTakeover tells a link that is not ours from one that was and has expired.
func (l *Links) CheckTakeover(k TakeoverLink, now time.Time) (until time.Time, err error) {
	exp, err := strconv.ParseInt(k.Expires, 10, 64)
	if err != nil || exp <= 0 || !hmac.Equal([]byte(l.sign("takeover", string(k.Box), k.Nonce, k.Expires)), []byte(k.Signature)) {
		return time.Time{}, ErrLink
	}
	until = time.Unix(exp, 0).UTC()
	if now.Unix() >= exp {
		return until, errLinkExpired
	}
	return until, nil
}

// Seat is a person's session at the screen of one box.
type Seat struct {
	Box      box.ID    `json:"b"`
	Session  string    `json:"s"`
	Person   string    `json:"p"`
	Expires  time.Time `json:"e"`
	Takeover string    `json:"-"` // the takeover it holds, empty when it holds none now
	Token    string    `json:"-"` // proves it
}

// seat fills in the token of a seat.
func (l *Links) seat(s Seat) Seat {
	body, err := json.Marshal(s)
	if err != nil {
		panic(err) // texts and a time always marshal
	}
	text := base64.RawURLEncoding.EncodeToString(body)
	s.Token = text + "." + l.sign("seat", text)
	return s
}

// checkSeat reads a token back.
func (l *Links) checkSeat(id box.ID, token string, now time.Time) (Seat, error) {
	text, signature, _ := strings.Cut(token, ".")
	if !hmac.Equal([]byte(l.sign("seat", text)), []byte(signature)) {
		return Seat{}, errSeat
	}
	var s Seat
	body, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(body, &s) != nil || s.Box != id || !now.Before(s.Expires) {
		return Seat{}, errSeat
	}
	s.Token = token
	return s, nil
}

// CheckTakeoverLink looks at a link without using it, and shows the box it leads to. One that was
// used or has expired leaves a trace.
func (s *Service) CheckTakeoverLink(ctx context.Context, k TakeoverLink) (box.State, error) {
	st, _, err := s.leadsTo(ctx, k)
	return st, err
}

// leadsTo is the box of a link that can still be used, and until when it can.
func (s *Service) leadsTo(ctx context.Context, k TakeoverLink) (box.State, time.Time, error) {
	until, err := s.Links.CheckTakeover(k, s.Now())
	if err != nil && !errors.Is(err, errLinkExpired) {
		return box.State{}, until, err
	}
	st, _, loadErr := s.Boxes.Load(ctx, box.StreamOf(k.Box))
	switch {
	case loadErr != nil:
		return box.State{}, until, loadErr
	case !st.Phase.Owned():
		return box.State{}, until, box.ErrUnknown
	case err != nil:
		s.refuseToken(ctx, st, k, "expired")
		return box.State{}, until, err
	}
	if _, used := st.Tokens[k.Nonce]; used {
		s.refuseToken(ctx, st, k, "used")
		return box.State{}, until, box.ErrTokenUsed
	}
	return st, until, nil
}

// OpenTakeover uses up a link and gives its bearer mouse and keyboard.
func (s *Service) OpenTakeover(ctx context.Context, k TakeoverLink) (Seat, error) {
	st, until, err := s.leadsTo(ctx, k)
	if err != nil {
		return Seat{}, err
	}
	who := Caller{Tenant: tenant.ID(st.Tenant), Person: "a person with the link"}
	seat, err := s.sit(ctx, who, k.Box, k.Nonce, until)
	if errors.Is(err, box.ErrTokenUsed) {
		s.refuseToken(ctx, st, k, "used")
	}
	return seat, err
}

// refuseToken notes that somebody came with a link that is over, at most once a minute.
func (s *Service) refuseToken(ctx context.Context, st box.State, k TakeoverLink, reason string) {
	who := Caller{Tenant: tenant.ID(st.Tenant)}
	op := fmt.Sprintf("%s %s %d", reason, k.Nonce, s.Now().Unix()/60)
	if _, err := s.box(ctx, who, k.Box, box.RefuseToken{Op: op, Token: k.Nonce, Reason: reason, At: s.Now()}); err != nil {
		s.Log.Warn("refusal of a link not noted", "box", k.Box, "err", err)
	}
}

// TakeSeat gives a person of the tenant mouse and keyboard, unless somebody has them.
func (s *Service) TakeSeat(ctx context.Context, who Caller, id box.ID) (Seat, error) {
	if _, err := s.own(ctx, who, id); err != nil {
		return Seat{}, err
	}
	return s.sit(ctx, who, id, "", time.Time{})
}

// JoinTakeover is TakeSeat by the id of the takeover that waits.
func (s *Service) JoinTakeover(ctx context.Context, who Caller, takeover string) (Seat, error) {
	row, err := s.takeoverOf(ctx, who, takeover)
	if err != nil {
		return Seat{}, err
	}
	if row.EndedAt != nil {
		return Seat{}, fault.New(fault.Conflict, "this takeover is over; GET /v1/takeovers lists those that wait")
	}
	return s.sit(ctx, who, row.Box, "", time.Time{})
}

func (s *Service) sit(ctx context.Context, who Caller, id box.ID, token string, until time.Time) (Seat, error) {
	defer s.inside(id)()
	seat := Seat{Box: id, Session: s.NewID(), Person: personOf(who), Expires: s.Now().Add(SeatLife).Truncate(time.Second)}
	s.seats.seen(seat.Session, s.Now())
	out, err := s.join(ctx, who, seat, token, until)
	if err != nil {
		return Seat{}, err
	}
	seat.Takeover = out.Takeover.ID
	return s.Links.seat(seat), nil
}

func (s *Service) join(ctx context.Context, who Caller, seat Seat, token string, until time.Time) (box.State, error) {
	takeover := s.NewID()
	out, err := s.boxAwake(ctx, who, seat.Box, "takeover", func() box.Command {
		return box.JoinTakeover{
			Takeover: takeover, Seat: seat.Session, Person: seat.Person, Replica: s.Replica,
			Token: token, TokenUntil: until, Until: s.Now().Add(VisitLife), At: s.Now(),
		}
	})
	return out.State, err
}

// SeatOf checks the token of a seat, and says in whose name its bearer looks at the box.
func (s *Service) SeatOf(ctx context.Context, id box.ID, token string) (Seat, Caller, error) {
	seat, err := s.Links.checkSeat(id, token, s.Now())
	if err != nil {
		return Seat{}, Caller{}, err
	}
	st, _, err := s.Boxes.Load(ctx, box.StreamOf(id))
	if err != nil {
		return Seat{}, Caller{}, err
	}
	if !st.Phase.Owned() {
		return Seat{}, Caller{}, box.ErrUnknown
	}
	if st.Takeover.Seat == seat.Session {
		seat.Takeover = st.Takeover.ID
	}
	return seat, Caller{Tenant: tenant.ID(st.Tenant), Person: seat.Person}, nil
}

// LeaveSeat gives mouse and keyboard back without a word to the agent.
func (s *Service) LeaveSeat(ctx context.Context, who Caller, seat Seat) error {
	_, err := s.box(ctx, who, seat.Box, box.LeaveTakeover{Seat: seat.Session, At: s.Now()})
	return err
}

// seats remembers which persons are connected to this process, or were a moment ago.
type seats struct {
	mu sync.Mutex
	by map[string]*presence
}

type presence struct {
	connected int
	last      time.Time
}

// seen notes a sign of life of a seat.
func (s *seats) seen(session string, now time.Time) { s.count(session, 0, now) }

func (s *seats) count(session string, by int, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = map[string]*presence{}
	}
	p := s.by[session]
	if p == nil {
		p = &presence{}
		s.by[session] = p
	}
	p.connected += by
	p.last = now
	for old, p := range s.by { // whoever left long ago
		if p.connected == 0 && now.Sub(p.last) > SeatLife {
			delete(s.by, old)
		}
	}
}

// Present is the newest moment at which the person in a seat was connected to this
// process: now while one is, and the zero time for one it never saw.
func (s *Service) Present(session string) time.Time {
	s.seats.mu.Lock()
	defer s.seats.mu.Unlock()
	p := s.seats.by[session]
	switch {
	case p == nil:
		return time.Time{}
	case p.connected > 0:
		return s.Now()
	}
	return p.last
}
