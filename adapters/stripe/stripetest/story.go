package stripetest

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stripe/stripe-go/v76/webhook"
)

// Event is a notice as it is sent.
type Event struct {
	ID   string
	Type string
	Body []byte
}

// Sign is the header that a body is sent with now.
func (s *Server) Sign(body []byte) string { return SignAt(body, s.now(), Secret) }

// SignAt is the header of a body that was signed at another time, or with another secret.
func SignAt(body []byte, at time.Time, secret string) string {
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(webhook.ComputeSignature(at, body, secret)))
}

// event tells of an object as it is now.
func (s *Server) event(kind string, o Object) Event {
	id := s.id("evt")
	body, err := json.Marshal(Object{
		"id": id, "object": "event", "api_version": "2023-10-16", "type": kind, "created": s.now().Unix(), "livemode": false, "data": Object{"object": o},
	})
	if err != nil {
		panic(err) // objects are made of strings and numbers
	}
	return Event{id, kind, body}
}

// change sets fields of an object.
func (s *Server) change(id string, fields Object) Object {
	o := s.objects[id]
	if o == nil {
		panic("stripetest: there is no " + id)
	}
	o = maps.Clone(o)
	maps.Copy(o, fields)
	s.objects[id] = o
	return o
}

func (s *Server) keep(o Object) Object {
	s.objects[o["id"].(string)] = o
	return o
}

// Pay lets somebody pay a checkout by card.
func (s *Server) Pay(session string) []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[session]
	if o["mode"] == "subscription" {
		return s.subscribe(session, o)
	}
	done := s.change(session, Object{"status": "complete", "payment_status": "paid", "payment_intent": s.intent(o, "succeeded")})
	return []Event{s.event("checkout.session.completed", done)}
}

// Promise lets somebody choose a means of payment that takes days.
func (s *Server) Promise(session string) []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	done := s.change(session, Object{"status": "complete", "payment_intent": s.intent(s.objects[session], "processing")})
	return []Event{s.event("checkout.session.completed", done)}
}

// Settle ends what was promised.
func (s *Server) Settle(session string, paid bool) []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !paid {
		return []Event{s.event("checkout.session.async_payment_failed", s.objects[session])}
	}
	return []Event{s.event("checkout.session.async_payment_succeeded", s.change(session, Object{"payment_status": "paid"}))}
}

func (s *Server) intent(session Object, status string) string {
	return s.keep(Object{
		"id": s.id("pi"), "object": "payment_intent", "status": status, "amount": session["amount_total"], "currency": "usd", "customer": session["customer"],
		"metadata": session["payment_metadata"], "refunded": int64(0), // the last is not Stripe's
	})["id"].(string)
}

func (s *Server) subscribe(session string, o Object) []Event {
	sub := s.keep(Object{
		"id": s.id("sub"), "object": "subscription", "status": "incomplete", "customer": o["customer"], "metadata": o["subscription_metadata"],
		"items": items(o["price"].(string)), "amount": o["amount_total"], // the last is not Stripe's
	})
	id := sub["id"].(string)
	events := []Event{s.event("customer.subscription.created", sub)}
	active := s.change(id, Object{"status": "active"})
	events = append(events, s.event("customer.subscription.updated", active), s.invoice(id, true))
	done := s.change(session, Object{"status": "complete", "payment_status": "paid", "subscription": id})
	return append(events, s.event("checkout.session.completed", done))
}

func items(price string) Object {
	return Object{"object": "list", "data": []Object{{"id": "si_1", "price": Object{"id": price}}}}
}

// invoice bills a subscription once more, and tells how that went.
func (s *Server) invoice(sub string, paid bool) Event {
	o := s.objects[sub]
	session := Object{"amount_total": o["amount"], "customer": o["customer"], "payment_metadata": Object{}}
	in := Object{
		"id": s.id("in"), "object": "invoice", "subscription": sub, "subscription_details": Object{"metadata": o["metadata"]}, "customer": o["customer"],
		"amount_due": o["amount"], "amount_paid": int64(0), "attempt_count": 1, "currency": "usd",
	}
	if !paid {
		in["payment_intent"] = s.intent(session, "requires_payment_method")
		return s.event("invoice.payment_failed", in)
	}
	in["payment_intent"], in["amount_paid"] = s.intent(session, "succeeded"), o["amount"]
	return s.event("invoice.paid", in)
}

// Renew bills a subscription for the next month.
func (s *Server) Renew(sub string) []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	paid := s.invoice(sub, true)
	return []Event{paid, s.event("customer.subscription.updated", s.change(sub, Object{"status": "active"}))}
}

// FailRenewal does so with a card that pays no more.
func (s *Server) FailRenewal(sub string) []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed := s.invoice(sub, false)
	return []Event{failed, s.event("customer.subscription.updated", s.change(sub, Object{"status": "past_due"}))}
}

// Switch moves a subscription to another price, as the portal does.
func (s *Server) Switch(sub, price string) []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []Event{s.event("customer.subscription.updated", s.change(sub, Object{"items": items(price)}))}
}

// Cancel ends a subscription.
func (s *Server) Cancel(sub string) []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []Event{s.event("customer.subscription.deleted", s.change(sub, Object{"status": "canceled"}))}
}

// Refund pays some of a payment back.
func (s *Server) Refund(payment string, cents int64) []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.change(payment, Object{"refunded": s.objects[payment]["refunded"].(int64) + cents})
	return []Event{s.event("charge.refunded", Object{
		"id": "ch_of_" + payment, "object": "charge", "payment_intent": payment, "customer": p["customer"], "metadata": p["metadata"],
		"amount": p["amount"], "amount_refunded": p["refunded"],
	})}
}

// Dispute has the payer's bank ask for a payment back.
func (s *Server) Dispute(payment string) (id string, told []Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.keep(Object{
		"id": s.id("dp"), "object": "dispute", "payment_intent": payment, "charge": "ch_of_" + payment, "amount": s.objects[payment]["amount"],
		"status": "needs_response", "reason": "fraudulent", "metadata": Object{},
	})
	return d["id"].(string), []Event{s.event("charge.dispute.created", d)}
}

// CloseDispute ends a dispute with a status of Stripe's, such as lost.
func (s *Server) CloseDispute(id, status string) []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []Event{s.event("charge.dispute.closed", s.change(id, Object{"status": status}))}
}

// Newest returns the id of the newest object of a kind, such as payment_intent.
func (s *Server) Newest(kind string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Backward(s.made) {
		if s.objects[id]["object"] == kind {
			return id
		}
	}
	return ""
}
