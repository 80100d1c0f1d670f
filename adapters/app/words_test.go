package app_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every sentence is there in every language, with the same blanks.
func TestLanguagesSayTheSame(t *testing.T) {
	w := open(t)
	blank := regexp.MustCompile(`\{(\d)`)
	blanks := func(s string) []string {
		var all []string
		for _, m := range blank.FindAllStringSubmatch(s, -1) {
			all = append(all, m[1])
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	en, ja := w.app.Words("en"), w.app.Words("ja")
	for key, text := range en {
		other, ok := ja[key]
		switch {
		case !ok:
			t.Errorf("ja has no %q", key)
		case !slices.Equal(blanks(text), blanks(other)):
			t.Errorf("%q has other blanks in ja: %q, %q", key, text, other)
		case text == "" || other == "":
			t.Errorf("%q is empty", key)
		}
	}
	for key := range ja {
		if _, ok := en[key]; !ok {
			t.Errorf("en has no %q", key)
		}
	}
}

// What pages and code ask for is there, and what is there is asked for.
func TestSentencesAreThereAndUsed(t *testing.T) {
	w := open(t)
	words := w.app.Words("en")
	used := map[string]bool{}
	asked := regexp.MustCompile(`(?:\bt |say\(|add\(|at\()"([a-z0-9.]+)"`)
	group := regexp.MustCompile(`(?:named\(|text\[|errors\.New\()"([a-z]+)\.?"`)
	refused := regexp.MustCompile(`"(refused\.[a-z]+)"`)
	done := regexp.MustCompile(`(?:a\.done\(w, r, [^)]*, |note = )"([a-z]+)"`)
	groups := map[string]bool{}
	files, err := filepath.Glob("*.go")
	w.must(err)
	pages, err := filepath.Glob("pages/*.html")
	w.must(err)
	for _, name := range append(files, pages...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		raw, err := os.ReadFile(name)
		w.must(err)
		for _, m := range asked.FindAllStringSubmatch(string(raw), -1) {
			used[m[1]] = true
			if _, ok := words[m[1]]; !ok && strings.Contains(m[1], ".") {
				t.Errorf("%s asks for %q, which is not there", name, m[1])
			}
		}
		for _, m := range refused.FindAllStringSubmatch(string(raw), -1) {
			used[m[1]+".title"], used[m[1]+".text"] = true, true
		}
		for _, m := range done.FindAllStringSubmatch(string(raw), -1) {
			used["done."+m[1]] = true
		}
		for _, m := range group.FindAllStringSubmatch(string(raw), -1) {
			groups[m[1]] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(words)) {
		name, _, _ := strings.Cut(key, ".")
		if !used[key] && !groups[name] {
			t.Errorf("nothing asks for %q", key)
		}
	}
	for key := range used {
		if _, ok := words[key]; !ok && (strings.HasPrefix(key, "done.") || strings.HasPrefix(key, "refused.")) {
			t.Errorf("%q is asked for and not there", key)
		}
	}
}
