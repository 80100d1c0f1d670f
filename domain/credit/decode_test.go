package credit_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"parallelsandbox/domain/credit"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/pricing"
)

// FuzzDebitsAreReadAsAnyOtherEvent: whatever is stored, a debit reads as encoding/json reads it.
func FuzzDebitsAreReadAsAnyOtherEvent(f *testing.F) {
	codec, err := ledger.NewCodec(credit.Events)
	if err != nil {
		f.Fatal(err)
	}
	full := debited(1, 100, at(2), credit.Draw{Bucket: "x", Amount: 60}, credit.Draw{Bucket: "y", Amount: 30})
	full.Revision, full.Late = 7, true
	call := credit.Debited{Tenant: "acme", Box: "b", Kind: pricing.Exec, From: at(1), Quantity: 1, Unit: "call", Book: 1, Revision: 9, At: at(2).Add(123456789)}
	odd := full
	odd.Tenant, odd.Box, odd.Kind, odd.Unit = `ä"\ <`, "", "other", "call"
	for _, d := range []credit.Debited{full, call, odd, {}} {
		entry, err := codec.Encode(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(entry.Data)
		indented, err := json.MarshalIndent(d, " ", "\t")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(indented)
	}
	for _, text := range []string{
		``, `{}`, `null`, `[]`, `{"tenant":"a"`, `{"tenant":"a","tenant":"b"}`, `{"TENANT":"a"}`, `{"from":"yesterday"}`,
		`{"tenant":"a","box":"b","kind":"box","from":"2026-01-01T00:00:00+02:00","quantity":60,"unit":"second","microUsd":-1,"milliCredits":100,"book":1,"late":false,"at":"2026-01-01T00:00:00Z"}`,
		`{"tenant":"a","box":"b","kind":"box","from":"2026-01-01T00:00:00Z","quantity":060,"unit":"second","microUsd":1,"milliCredits":100,"book":1,"at":"2026-01-01T00:00:00Z"}`,
		`{"tenant":"a","box":"b","kind":"box","from":"2026-01-01T00:00:00Z","quantity":6e1,"unit":"second","microUsd":1,"milliCredits":100,"book":1,"at":"2026-01-01T00:00:00Z"}`,
		`{"tenant":"a","box":"b","kind":"box","from":"2026-01-01T00:00:00Z","quantity":60,"unit":"second","microUsd":1,"milliCredits":100,"book":1,"drawn":[],"at":"2026-01-01T00:00:00Z"}`,
		`{"tenant":"a","box":"b","kind":"box","from":"2026-01-01T00:00:00Z","quantity":99999999999999999999,"unit":"second","microUsd":1,"milliCredits":100,"book":1,"at":"2026-01-01T00:00:00Z"}`,
		`{"tenant":"a","box":"b","kind":"box","from":"2026-01-01T00:00:00Z","quantity":1,"unit":"second","microUsd":1,"milliCredits":100,"book":1,"at":"2026-01-01T00:00:00Z"} x`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var want credit.Debited
		wantErr := json.Unmarshal(data, &want)
		got, err := codec.Decode(ledger.Entry{Type: "credit.debited", Version: 1, Data: data})
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%s\nreads with %v, and with %v by encoding/json", data, err, wantErr)
		}
		if err == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\n got %#v\nwant %#v", data, got, want)
		}
	})
}

// What this program writes is read without a second look: this is what a replay rests on.
func TestADebitIsReadWithFewAllocations(t *testing.T) {
	codec, err := ledger.NewCodec(credit.Events)
	if err != nil {
		t.Fatal(err)
	}
	entry, err := codec.Encode(debited(1, 100, at(2), credit.Draw{Bucket: "b2wc6mq5xz3tk7jv4apn", Amount: 100}))
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = codec.Decode(entry) }); n > 6 {
		t.Errorf("%.0f allocations", n)
	}
}
