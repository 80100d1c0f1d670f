package tidy_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// topLevel is the whole front of the house. Files whose name begins with a dot may come
// and go: tools insist on them.
var topLevel = []string{
	"cmd", "domain", "projections", "adapters", "hypervisor", "schemas", "docs",
	"go.mod", "go.sum", "Makefile", "README.md", "LICENSE", ".ci",
}

func layout(t *tree) (bad []string) {
	have := map[string]bool{}
	for _, f := range t.files {
		top, _, _ := strings.Cut(f, "/")
		have[top] = true
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if !slices.Contains(topLevel, name) && !strings.HasPrefix(name, ".") {
			bad = append(bad, fmt.Sprintf("%s does not belong at the top level: find the folder whose job it is", name))
		}
	}
	for _, name := range topLevel {
		if !have[name] {
			bad = append(bad, fmt.Sprintf("%s is missing at the top level", name))
		}
	}
	return bad
}

func TestLayout(t *testing.T) { hold(t, layout) }

func TestLayoutCanFail(t *testing.T) {
	breaks(t, layout, plant(t, `
-- cmd/psbx/main.go --
package main
-- domain/a.go --
package domain
-- projections/a.go --
package projections
-- adapters/a.go --
package adapters
-- hypervisor/a.go --
package hypervisor
-- pkg/a.go --
package pkg
-- docs/ARCHITECTURE.md --
-- go.mod --
-- go.sum --
-- Makefile --
-- LICENSE --
-- .ci/run --
-- .gitignore --
-- notes.txt --
`), "pkg does not belong", "notes.txt does not belong", "schemas is missing", "README.md is missing")
}

// modules refuses a go.mod that works on one machine only.
func modules(t *tree) (bad []string) {
	for i, line := range strings.Split(string(t.text["go.mod"]), "\n") {
		line, _, _ = strings.Cut(line, "//")
		if strings.Contains(line, "=>") {
			bad = append(bad, fmt.Sprintf("go.mod:%d replaces a module: depend on a released version", i+1))
		}
	}
	return bad
}

func TestModules(t *testing.T) { hold(t, modules) }

func TestModulesCanFail(t *testing.T) {
	breaks(t, modules, plant(t, `
-- go.mod --
module x
// a => b in a comment is fine
replace a => ../a
replace (
	b v1.0.0 => c v1.2.0
)
`), "go.mod:3", "go.mod:5")
}

var (
	// registries are hosts that packages come from. Which one is used is for the machine
	// to say (its npm, Go and apt settings), never for the repository.
	registries = regexp.MustCompile(`registry\.(npmjs|yarnpkg)\.|(proxy|sum)\.golang\.org|(deb|security)\.debian\.org|pypi\.org|ghcr\.io|quay\.io|index\.docker\.io|registry-1\.docker`)
	// homes are folders of somebody's own machine.
	homes = regexp.MustCompile(`(^|[^\w./>-])/(home|Users)/[\w.]|(^|[^\w./>-])/root/(go|lab|src)\b`)
)

// places finds what ties the repository to one machine or one network.
func places(t *tree) (bad []string) {
	for _, f := range slices.Sorted(maps.Keys(t.text)) {
		for i, line := range strings.Split(string(t.text[f]), "\n") {
			if m := registries.FindString(line); m != "" {
				bad = append(bad, fmt.Sprintf("%s:%d names the package host %s: leave it to the machine's settings", f, i+1, m))
			}
			if m := homes.FindString(line); m != "" {
				bad = append(bad, fmt.Sprintf("%s:%d names a folder of one machine: %s", f, i+1, strings.TrimSpace(m)))
			}
		}
	}
	return bad
}

func TestPlaces(t *testing.T) { hold(t, places) }

func TestPlacesCanFail(t *testing.T) {
	host := "registry" + ".npmjs.org"
	breaks(t, places, plant(t, "-- a/package-lock.json --\n{\"resolved\": \"https://"+host+"/x\"}\n"+
		"-- b.sh --\nset -e\nGOPROXY=https://proxy"+".golang.org\ncd /home"+"/me/src\n"+
		"-- c.md --\nsee https://example.com/home"+"/me, the folder /root/x and /work/app\n-- d.go --\npackage d\nconst at = \"/root"+"/go/pkg\"\n"),
		"a/package-lock.json:1 names the package host", "b.sh:2 names the package host", "b.sh:3 names a folder", "d.go:2 names a folder")
}
