// Package stripetest plays Stripe: it keeps customers, checkouts, payments and subscriptions,
// answers a repeated request as Stripe does, and tells what happens in signed notices, which
// a test delivers in whatever order it likes.
//
// Read server.go for what can be asked over HTTP, story.go for what can happen, and
// billing.go for a service that sells through it. It knows
// as much as adapters/stripe needs; that the requests are as Stripe wants them is checked
// against stripe-mock.
package stripetest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// What a client of the server is set up with.
const (
	Key      = "sk_test_stripetest"
	Secret   = "whsec_stripetest"
	PricePro = "price_pro"
	PriceMax = "price_max"
)

// Object is one of Stripe's, as it is told in JSON.
type Object map[string]any

// Request is a request that was answered.
type Request struct {
	Method, Path   string
	IdempotencyKey string
	Form           url.Values
}

// Server is a Stripe of its own.
type Server struct {
	URL string

	now      func() time.Time
	mu       sync.Mutex
	made     []string          // ids, oldest first
	objects  map[string]Object // by id
	answers  map[string]answer // by idempotency key
	requests []Request
	fail     []failure
}

type answer struct {
	params string
	status int
	body   []byte
}

type failure struct {
	status int
	after  bool
}

// New starts a server that ends with the test.
func New(t testing.TB, now func() time.Time) *Server {
	t.Helper()
	s := &Server{now: now, objects: map[string]Object{}, answers: map[string]answer{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/customers", s.write(s.newCustomer))
	mux.HandleFunc("POST /v1/checkout/sessions", s.write(s.newSession))
	mux.HandleFunc("POST /v1/billing_portal/sessions", s.write(s.newPortal))
	for _, path := range []string{"customers", "payment_intents", "subscriptions"} {
		mux.HandleFunc("GET /v1/"+path+"/{id}", s.read)
	}
	web := httptest.NewServer(s.guard(mux))
	t.Cleanup(web.Close)
	s.URL = web.URL
	return s
}

// Fail makes the next request fail with a status: before it did anything, or after, when only
// the answer is lost.
func (s *Server) Fail(status int, after bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = append(s.fail, failure{status, after})
}

// Requests lists what was asked so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// Count counts the objects there are of a kind, such as customer or checkout.session.
func (s *Server) Count(kind string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects {
		if o["object"] == kind {
			n++
		}
	}
	return n
}

// guard lets nobody in without the key, and loses the answers it was told to.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+Key {
			refuse(w, http.StatusUnauthorized, "invalid_request_error", "Invalid API Key provided: "+r.Header.Get("Authorization"))
			return
		}
		if err := r.ParseForm(); err != nil {
			refuse(w, http.StatusBadRequest, "invalid_request_error", err.Error())
			return
		}
		s.mu.Lock()
		s.requests = append(s.requests, Request{r.Method, r.URL.Path, r.Header.Get("Idempotency-Key"), r.PostForm})
		var f failure
		if len(s.fail) > 0 {
			f, s.fail = s.fail[0], s.fail[1:]
		}
		s.mu.Unlock()
		switch {
		case f.status == 0:
			next.ServeHTTP(w, r)
			return
		case f.after:
			next.ServeHTTP(httptest.NewRecorder(), r)
		}
		refuse(w, f.status, "api_error", "something is wrong on our side")
	})
}

func refuse(w http.ResponseWriter, status int, kind, message string) {
	w.WriteHeader(status)
	body, _ := json.Marshal(Object{"error": Object{"type": kind, "message": message}}) // strings
	_, _ = w.Write(body)
}

// write makes an object, or gives the answer again that this key had. The same key with
// another request is refused, as Stripe does.
func (s *Server) write(do func(f url.Values) (Object, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		key, params := r.Header.Get("Idempotency-Key"), r.URL.Path+"?"+r.PostForm.Encode()
		a, again := s.answers[key]
		switch {
		case key == "":
			refuse(w, http.StatusBadRequest, "invalid_request_error", "every write needs an Idempotency-Key here")
			return
		case again && a.params != params:
			refuse(w, http.StatusBadRequest, "idempotency_error", "the key was used with other parameters")
			return
		case !again:
			o, err := do(r.PostForm)
			if err != nil {
				refuse(w, http.StatusBadRequest, "invalid_request_error", err.Error())
				return
			}
			s.objects[o["id"].(string)] = o
			body, _ := json.Marshal(o)
			a = answer{params, http.StatusOK, body}
			s.answers[key] = a
		}
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body)
	}
}

func (s *Server) read(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.objects[r.PathValue("id")]
	if !ok {
		refuse(w, http.StatusNotFound, "invalid_request_error", "No such object: "+r.PathValue("id"))
		return
	}
	body, _ := json.Marshal(o)
	_, _ = w.Write(body)
}

// id counts up over all kinds, so that it is the same in every run.
func (s *Server) id(prefix string) string {
	id := fmt.Sprintf("%s_%d", prefix, len(s.made)+1)
	s.made = append(s.made, id)
	return id
}

// inside collects what a form has under prefix[…].
func inside(f url.Values, prefix string) Object {
	o := Object{}
	for name, values := range f {
		if key, ok := strings.CutPrefix(name, prefix+"["); ok {
			o[strings.TrimSuffix(key, "]")] = values[0]
		}
	}
	return o
}

func (s *Server) newCustomer(f url.Values) (Object, error) {
	return Object{"id": s.id("cus"), "object": "customer", "name": f.Get("name"), "metadata": inside(f, "metadata")}, nil
}

func (s *Server) newPortal(f url.Values) (Object, error) {
	if s.objects[f.Get("customer")] == nil {
		return nil, fmt.Errorf("no such customer: '%s'", f.Get("customer"))
	}
	id := s.id("bps")
	return Object{"id": id, "object": "billing_portal.session", "url": "https://billing.stripe.test/p/session/" + id}, nil
}

func (s *Server) newSession(f url.Values) (Object, error) {
	if s.objects[f.Get("customer")] == nil {
		return nil, fmt.Errorf("no such customer: '%s'", f.Get("customer"))
	}
	var cents int64
	_, _ = fmt.Sscan(f.Get("line_items[0][price_data][unit_amount]"), &cents) // none for a plan
	price := f.Get("line_items[0][price]")
	switch price {
	case PricePro:
		cents = 2000
	case PriceMax:
		cents = 20000
	default:
		if cents < 50 || price != "" {
			return nil, fmt.Errorf("no such price: '%s', or less than 50 cents", price)
		}
	}
	id := s.id("cs_test")
	return Object{
		"id": id, "object": "checkout.session", "mode": f.Get("mode"), "customer": f.Get("customer"), "client_reference_id": f.Get("client_reference_id"),
		"metadata": inside(f, "metadata"), "amount_total": cents, "currency": "usd", "payment_status": "unpaid", "status": "open", "livemode": false,
		"payment_intent": nil, "subscription": nil, "url": "https://checkout.stripe.test/c/pay/" + id, "expires_at": s.now().Add(24 * time.Hour).Unix(),
		// Not Stripe's: what the payment and the subscription are made with.
		"price": price, "payment_metadata": inside(f, "payment_intent_data[metadata]"), "subscription_metadata": inside(f, "subscription_data[metadata]"),
	}, nil
}
