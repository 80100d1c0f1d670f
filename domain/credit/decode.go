package credit

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/money"
	"parallelsandbox/domain/pricing"
)

// decodeDebited reads a debit. There are as many of them as minutes of all boxes, and finance
// reads all of them, so the form in which this program writes them is read without
// reflection. Whatever else is valid is read as any other event.
func decodeDebited(data []byte) (d Debited, err error) {
	s := scanner{rest: data}
	s.skip(`{"tenant":`)
	d.Tenant = s.text()
	s.skip(`,"box":`)
	d.Box = s.text()
	s.skip(`,"kind":`)
	d.Kind = s.kind()
	s.skip(`,"from":`)
	d.From = s.moment()
	s.skip(`,"quantity":`)
	d.Quantity = s.integer()
	s.skip(`,"unit":`)
	d.Unit = s.unit(d.Kind)
	s.skip(`,"microUsd":`)
	d.Cost = money.MicroUSD(s.integer())
	s.skip(`,"milliCredits":`)
	d.Amount = money.Milli(s.integer())
	s.skip(`,"book":`)
	d.Book = int(s.integer())
	if s.has(`,"revision":`) {
		d.Revision = ledger.Revision(s.integer())
	}
	if s.has(`,"drawn":[`) {
		d.Drawn = s.draws()
	}
	if s.has(`,"owedMilliCredits":`) {
		d.Owed = money.Milli(s.integer())
	}
	d.Late = s.has(`,"late":true`)
	s.skip(`,"at":`)
	d.At = s.moment()
	s.skip(`}`)
	if s.other || len(s.rest) > 0 {
		d = Debited{}
		err = json.Unmarshal(data, &d)
	}
	return d, err
}

// scanner reads JSON of which the form is known.
type scanner struct {
	rest  []byte
	other bool // it has another form
}

func (s *scanner) has(literal string) bool {
	if len(s.rest) < len(literal) || string(s.rest[:len(literal)]) != literal {
		return false
	}
	s.rest = s.rest[len(literal):]
	return true
}

func (s *scanner) skip(literal string) {
	if !s.has(literal) {
		s.other = true
	}
}

// quoted is a text without escapes; one that has some is of another form.
func (s *scanner) quoted() []byte {
	if !s.has(`"`) {
		s.other = true
		return nil
	}
	end := bytes.IndexByte(s.rest, '"')
	if end < 0 {
		s.other = true
		return nil
	}
	text := s.rest[:end]
	for _, c := range text {
		if c < ' ' || c > '~' || c == '\\' {
			s.other = true
			return nil
		}
	}
	s.rest = s.rest[end+1:]
	return text
}

func (s *scanner) text() string { return string(s.quoted()) }

// kind and unit allocate nothing where they are what they mostly are.
func (s *scanner) kind() pricing.Kind {
	text := s.quoted()
	for _, k := range pricing.Kinds {
		if string(text) == string(k) {
			return k
		}
	}
	return pricing.Kind(text)
}

func (s *scanner) unit(k pricing.Kind) string {
	text := s.quoted()
	if unit := k.Unit(); string(text) == unit {
		return unit
	}
	return string(text)
}

func (s *scanner) moment() (t time.Time) {
	if err := t.UnmarshalText(s.quoted()); err != nil {
		s.other = true
	}
	return t
}

func (s *scanner) integer() int64 {
	n := 0
	for n < len(s.rest) && (s.rest[n] >= '0' && s.rest[n] <= '9' || s.rest[n] == '-' && n == 0) {
		n++
	}
	digits := s.rest[:n]
	v, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || v < 0 || n > 1 && digits[0] == '0' {
		s.other = true
		return 0
	}
	s.rest = s.rest[n:]
	return v
}

func (s *scanner) draws() (all []Draw) {
	for !s.other {
		s.skip(`{"bucket":`)
		one := Draw{Bucket: s.text()}
		s.skip(`,"milliCredits":`)
		one.Amount = money.Milli(s.integer())
		s.skip(`}`)
		all = append(all, one)
		if s.has(`]`) {
			break
		}
		s.skip(`,`)
	}
	return all
}
