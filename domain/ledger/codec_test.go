package ledger_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"parallelsandbox/domain/ledger"
)

// A box was moved by name at first, then by id, and now it says how fast as well.
type (
	moved struct {
		ID    string `json:"id"`
		Speed int    `json:"speed"`
	}
	stopped struct{}
)

func rename(b []byte) ([]byte, error) {
	return bytes.Replace(b, []byte(`"name"`), []byte(`"id"`), 1), nil
}

func addSpeed(b []byte) ([]byte, error) {
	return append(bytes.TrimSuffix(b, []byte("}")), []byte(`,"speed":1}`)...), nil
}

func codec(t *testing.T) *ledger.Codec {
	t.Helper()
	c, err := ledger.NewCodec([]ledger.EventType{ledger.Event[moved]("box.moved", rename, addSpeed)}, []ledger.EventType{ledger.Event[stopped]("box.stopped")})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	c := codec(t)
	e, err := c.Encode(moved{"a", 5})
	if err != nil || e.Type != "box.moved" || e.Version != 3 || string(e.Data) != `{"id":"a","speed":5}` {
		t.Fatalf("written %+v, %v", e, err)
	}
	if v, err := c.Decode(e); !reflect.DeepEqual(v, moved{"a", 5}) || err != nil {
		t.Errorf("read %#v, %v", v, err)
	}
}

// Old data takes every step from its own version on, and none before it.
func TestOldVersionsAreRead(t *testing.T) {
	for version, data := range map[int]string{1: `{"name":"a"}`, 2: `{"id":"a"}`, 3: `{"id":"a","speed":1}`} {
		v, err := codec(t).Decode(ledger.Entry{Type: "box.moved", Version: version, Data: []byte(data)})
		if !reflect.DeepEqual(v, moved{"a", 1}) || err != nil {
			t.Errorf("version %d is read as %#v, %v", version, v, err)
		}
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	broken := errors.New("broken")
	c, err := ledger.NewCodec([]ledger.EventType{ledger.Event[moved]("box.moved", func([]byte) ([]byte, error) { return nil, broken })})
	if err != nil {
		t.Fatal(err)
	}
	for what, e := range map[string]struct {
		entry ledger.Entry
		says  string
	}{
		"an unknown name":       {ledger.Entry{Type: "box.flown", Version: 1, Data: []byte(`{}`)}, `unknown event "box.flown"`},
		"a version to come":     {ledger.Entry{Type: "box.moved", Version: 3, Data: []byte(`{}`)}, "version 3 is newer than this binary (2)"},
		"no version":            {ledger.Entry{Type: "box.moved", Data: []byte(`{}`)}, "version 0"},
		"what is no JSON":       {ledger.Entry{Type: "box.moved", Version: 2, Data: []byte(`{`)}, "decode box.moved"},
		"a step that cannot be": {ledger.Entry{Type: "box.moved", Version: 1, Data: []byte(`{}`)}, "upcast box.moved from 1: broken"},
	} {
		if v, err := c.Decode(e.entry); v != nil && err == nil || err == nil || !strings.Contains(err.Error(), e.says) {
			t.Errorf("%s: %#v, %v", what, v, err)
		}
	}
	if _, err := c.Encode(stopped{}); err == nil || !strings.Contains(err.Error(), "not a declared event") {
		t.Errorf("an undeclared event is written: %v", err)
	}
	if _, err := c.Encode(&moved{}); err == nil {
		t.Error("a pointer to an event is written")
	}
}

func TestBadDeclarationsStopTheProgram(t *testing.T) {
	fine := ledger.Event[moved]("box.moved")
	for what, set := range map[string][]ledger.EventType{
		"no category":       {ledger.Event[stopped]("stopped")},
		"a Go name":         {ledger.Event[stopped]("box.Stopped")},
		"two dots":          {ledger.Event[stopped]("box.was.stopped")},
		"no name":           {ledger.Event[stopped]("")},
		"a name twice":      {fine, ledger.Event[stopped]("box.moved")},
		"a type twice":      {fine, ledger.Event[moved]("box.shifted")},
		"a line end behind": {ledger.Event[stopped]("box.stopped\n")},
	} {
		if _, err := ledger.NewCodec(set); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

func TestUnsoundEntriesAreRefused(t *testing.T) {
	good := ledger.Entry{ID: "1", Type: "box.moved", Version: 1, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Data: []byte(`{}`)}
	with := func(change func(*ledger.Entry)) []ledger.Entry { e := good; change(&e); return []ledger.Entry{good, e} }
	if err := ledger.CheckAppend("box-1", []ledger.Entry{good}); err != nil {
		t.Errorf("a sound entry: %v", err)
	}
	for what, c := range map[string]struct {
		stream  ledger.Stream
		entries []ledger.Entry
	}{
		"no stream":  {"", []ledger.Entry{good}},
		"no entries": {"box-1", nil},
		"no id":      {"box-1", with(func(e *ledger.Entry) { e.ID = "" })},
		"no type":    {"box-1", with(func(e *ledger.Entry) { e.Type = "" })},
		"no version": {"box-1", with(func(e *ledger.Entry) { e.Version = 0 })},
		"year 10000": {"box-1", with(func(e *ledger.Entry) { e.At = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) })},
		"year 0":     {"box-1", with(func(e *ledger.Entry) { e.At = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC) })},
		"no JSON":    {"box-1", with(func(e *ledger.Entry) { e.Data = []byte("x") })},
		"no data":    {"box-1", with(func(e *ledger.Entry) { e.Data = nil })},
		"too much":   {"box-1", with(func(e *ledger.Entry) { e.Data = []byte(`"` + strings.Repeat("x", ledger.MaxData) + `"`) })},
	} {
		if err := ledger.CheckAppend(c.stream, c.entries); !errors.Is(err, ledger.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
