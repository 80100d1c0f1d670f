package notice

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	// The time a cloud gives where its notice names none.
	usualNotice = 2 * time.Minute
	// Google's, whose notice is the word TRUE.
	shortNotice = 30 * time.Second

	maxReason   = 120
	plainReason = "reclaim notice"
)

// document is what the clouds write as JSON. Amazon: action and time. Azure: a list of
// events about machines, most of them about something else.
type document struct {
	Action string
	Time   string // RFC 3339
	Events *[]struct {
		EventType string
		NotBefore string // as in HTTP headers, empty for now
	}
}

// read makes out what was announced; not ok is nothing.
func read(body []byte, now time.Time) (n Notice, ok bool, err error) {
	text := strings.TrimSpace(string(body))
	switch {
	case strings.EqualFold(text, "FALSE"), strings.EqualFold(text, "NONE"):
		return Notice{}, false, nil
	case strings.EqualFold(text, "TRUE"):
		return Notice{Reason: "preempted", Deadline: now.Add(shortNotice)}, true, nil
	case strings.HasPrefix(text, "<"):
		return Notice{}, false, errors.New("what answers there is a page for people and no notice")
	case !strings.HasPrefix(text, "{"):
		return Notice{Reason: reason(text), Deadline: now.Add(usualNotice)}, true, nil
	}
	var d document
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return Notice{Reason: plainReason, Deadline: now.Add(usualNotice)}, true, nil // in doubt the machine goes
	}
	if d.Events != nil {
		return scheduled(d, now)
	}
	at, err := time.Parse(time.RFC3339, d.Time)
	if err != nil {
		at = now.Add(usualNotice)
	}
	return Notice{Reason: reason(d.Action), Deadline: at.UTC()}, true, nil
}

// scheduled picks the first event that takes the machine away.
func scheduled(d document, now time.Time) (n Notice, ok bool, err error) {
	for _, e := range *d.Events {
		if e.EventType != "Preempt" && e.EventType != "Terminate" {
			continue
		}
		at, err := http.ParseTime(e.NotBefore)
		if err != nil {
			at = now.Add(shortNotice)
		}
		if !ok || at.Before(n.Deadline) {
			n, ok = Notice{Reason: strings.ToLower(e.EventType), Deadline: at.UTC()}, true
		}
	}
	return n, ok, nil
}

// reason keeps a short text of one line, which agents will read; anything else says
// nothing that helps them.
func reason(text string) string {
	if text == "" || len(text) > maxReason || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return plainReason
	}
	return text
}
