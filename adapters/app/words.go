package app

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:embed words/*.json
var wordFiles embed.FS

// language is every sentence of the app in one language.
type language struct {
	Lang string // as browsers name it
	text map[string]string
}

// languages in the order in which they are offered.
var languages = []string{"en", "ja"}

func loadWords() (map[string]*language, error) {
	all := map[string]*language{}
	for _, name := range languages {
		raw, err := wordFiles.ReadFile("words/" + name + ".json")
		if err != nil {
			return nil, fmt.Errorf("app: words: %w", err)
		}
		l := &language{Lang: name}
		if err := json.Unmarshal(raw, &l.text); err != nil {
			return nil, fmt.Errorf("app: words/%s.json: %w", name, err)
		}
		all[name] = l
	}
	return all, nil
}

// blank is a place in a sentence: {0} for the first argument, {0?one|many} for a word that
// depends on it.
var blank = regexp.MustCompile(`\{(\d)(?:\?([^|}]*)\|([^}]*))?\}`)

// sentence is the text under a key, with its blanks filled in. A key that is not there is
// a mistake of ours, and an error.
func (l *language) sentence(key string, args ...any) (string, error) {
	text, ok := l.text[key]
	if !ok {
		return "", fmt.Errorf("app: words/%s.json has no %q", l.Lang, key)
	}
	var err error
	text = blank.ReplaceAllStringFunc(text, func(m string) string {
		part := blank.FindStringSubmatch(m)
		i, _ := strconv.Atoi(part[1]) // one digit
		if i >= len(args) {
			err = fmt.Errorf("app: %q wants %d arguments", key, i+1)
			return ""
		}
		said := fmt.Sprint(args[i])
		switch {
		case part[2] == "" && part[3] == "":
			return said
		case said == "1":
			return part[2]
		}
		return part[3]
	})
	return text, err
}

// say is sentence for keys that are written in the code; a test holds that they are there.
func (l *language) say(key string, args ...any) string {
	text, err := l.sentence(key, args...)
	if err != nil {
		return key
	}
	return text
}

// named is the word for a thing that has a stored name; names that have no word stand for
// themselves.
func (l *language) named(group, name string) string {
	if text, ok := l.text[group+"."+name]; ok {
		return text
	}
	return name
}

// speak chooses the language: the one that was chosen here before, else what the browser
// prefers, else English.
func (a *App) speak(r *http.Request) *language {
	if l := a.words[a.cookie(r, languageCookie)]; l != nil {
		return l
	}
	best, weight := a.words["en"], 0.0
	for _, part := range strings.Split(r.Header.Get("Accept-Language"), ",") {
		tag, q, _ := strings.Cut(part, ";")
		tag, _, _ = strings.Cut(strings.ToLower(strings.TrimSpace(tag)), "-")
		n := 1.0
		if s, ok := strings.CutPrefix(strings.TrimSpace(q), "q="); ok {
			if f, err := strconv.ParseFloat(s, 64); err == nil {
				n = f
			}
		}
		if slices.Contains(languages, tag) && n > weight {
			best, weight = a.words[tag], n
		}
	}
	return best
}
