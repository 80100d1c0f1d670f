package stripe_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/adapters/stripe/stripetest"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/tenant"
)

// mock starts stripe-mock, which holds requests against Stripe's own description of its API.
// Where TEST_REQUIRE names stripe a missing one is a failure.
func mock(t *testing.T) (url string) {
	t.Helper()
	program := os.Getenv("PSBX_TEST_STRIPE_MOCK")
	if _, err := os.Stat(program); err != nil {
		if slices.Contains(strings.Split(os.Getenv("TEST_REQUIRE"), ","), "stripe") {
			t.Fatalf("TEST_REQUIRE names stripe, and stripe-mock is not at PSBX_TEST_STRIPE_MOCK (%q)", program)
		}
		t.Skip("stripe-mock is not here; .ci/setup test installs it, and .ci/env says where it is")
	}
	for range 3 { // somebody else may take a port meanwhile
		if url = start(t, program); url != "" {
			return url
		}
	}
	t.Fatal("stripe-mock does not start")
	return ""
}

func start(t *testing.T, program string) string {
	t.Helper()
	web, tls := freePort(t), freePort(t)
	var said bytes.Buffer
	// Without an address for HTTPS it would listen on every network of the machine.
	cmd := exec.Command(program, "-http-addr", web, "-https-addr", tls)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		select {
		case <-ended:
			t.Logf("stripe-mock has ended: %s", said.String())
			return ""
		default:
		}
		if answer, err := http.Get("http://" + web + "/v1/customers"); err == nil {
			answer.Body.Close()
			return "http://" + web
		}
	}
	return ""
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Every request we make is one that Stripe takes, by its own description.
func TestRequestsAreAsStripeWantsThem(t *testing.T) {
	h := controltest.New(t, new(memory.Ledger), controltest.WithoutWorker())
	cfg := stripetest.New(t, h.Clock.Now).Config()
	cfg.URL = mock(t)
	bills, _ := stripetest.Billing(t, h, cfg)
	for _, p := range []control.Purchase{{Credits: 1000}, {Credits: 1_000_000}, {Plan: tenant.Pro}, {Plan: tenant.Max}} {
		sale, err := bills.Checkout(t.Context(), h.Tenant.Caller, p)
		if err != nil || sale.Customer == "" {
			t.Errorf("%+v: %+v, %v", p, sale, err)
		}
	}
	if _, err := bills.Portal(t.Context(), h.Tenant.Caller); err != nil {
		t.Errorf("portal: %v", err)
	}
	// Its fixtures carry no metadata of ours, so what they are about is nobody's here.
	for kind, object := range map[string]string{
		"charge.dispute.created": `{"id":"dp_1","payment_intent":"pi_1","amount":1}`,
		"invoice.paid":           `{"id":"in_1","subscription":"sub_1","amount_paid":1,"currency":"usd"}`,
	} {
		body := fmt.Appendf(nil, `{"id":"evt_1","object":"event","type":%q,"created":1,"livemode":false,"data":{"object":%s}}`, kind, object)
		if err := bills.Notice(t.Context(), body, stripetest.SignAt(body, h.Clock.Now(), stripetest.Secret)); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	// It would say so if a parameter were none of Stripe's.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, cfg.URL+"/v1/customers", strings.NewReader("shoe_size=9"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+cfg.Key)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusBadRequest {
		t.Errorf("a parameter that is none: %s", answer.Status)
	}
}
