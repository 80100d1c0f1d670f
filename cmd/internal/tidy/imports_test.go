package tidy_test

import (
	"fmt"
	"go/ast"
	"path"
	"strings"
	"testing"
)

// mayImport says which folders of ours a package may know. The first line that fits
// the package counts; "self" is the adapter the package belongs to.
var mayImport = []struct {
	from  string
	exact bool // the folder itself and nothing below it
	to    []string
}{
	{from: "domain", to: []string{"domain"}},
	{from: "projections", to: []string{"domain", "projections"}},
	{from: "hypervisor", exact: true},
	{from: "hypervisor/worker", to: []string{"domain", "hypervisor"}},
	{from: "hypervisor", to: []string{"hypervisor"}}, // a driver knows machines, not boxes
	{from: "adapters", to: []string{"domain", "projections", "schemas", "self"}},
	{from: "schemas", to: []string{"schemas"}},
	{from: "cmd", to: []string{"cmd", "domain", "projections", "hypervisor", "adapters", "schemas"}},
}

// imports holds the one direction in which packages may know each other. Test files are
// free to wire things up, but nothing may depend on a program.
func imports(t *tree) (bad []string) {
	for _, f := range t.code {
		paths, _ := f.imports()
		for _, p := range paths {
			to, ours := strings.CutPrefix(p, module+"/")
			switch {
			case ours && f.test:
				if under(to, "cmd") && !under(f.dir, "cmd") {
					bad = append(bad, fmt.Sprintf("%s imports %s: programs are built from packages, never the other way round", f.path, to))
				}
			case ours:
				if !allowed(f.dir, to) {
					bad = append(bad, fmt.Sprintf("%s must not import %s", f.path, to))
				}
			case !f.test && under(f.dir, "domain") && strings.Contains(strings.Split(p, "/")[0], "."):
				bad = append(bad, fmt.Sprintf("%s imports %s: the domain uses the standard library and itself only", f.path, p))
			}
		}
	}
	return bad
}

func allowed(from, to string) bool {
	for _, row := range mayImport {
		if from != row.from && (row.exact || !under(from, row.from)) {
			continue
		}
		for _, folder := range row.to {
			if folder == "self" {
				folder = strings.Join(strings.SplitN(from, "/", 3)[:2], "/")
			}
			if under(to, folder) {
				return true
			}
		}
		return false
	}
	return false
}

func TestImports(t *testing.T) { hold(t, imports) }

func TestImportsCanFail(t *testing.T) {
	breaks(t, imports, plant(t, `
-- domain/box/a.go --
package box
import ("time"; "parallelsandbox/domain/ledger"; "parallelsandbox/projections"; "example.com/x")
-- domain/box/a_test.go --
package box
import ("example.com/rapid"; "parallelsandbox/adapters/memory"; "parallelsandbox/cmd/internal/wire")
-- projections/boxes/a.go --
package boxes
import ("parallelsandbox/domain/box"; "parallelsandbox/projections"; "parallelsandbox/adapters/sqlite")
-- hypervisor/a.go --
package hypervisor
import "parallelsandbox/hypervisor/fake"
-- hypervisor/gvisor/a.go --
package gvisor
import ("parallelsandbox/hypervisor"; "parallelsandbox/domain/ledger")
-- hypervisor/worker/a.go --
package worker
import ("parallelsandbox/domain/box"; "parallelsandbox/hypervisor/guest"; "parallelsandbox/adapters/memory")
-- adapters/rest/v1/a.go --
package v1
import ("parallelsandbox/adapters/rest"; "parallelsandbox/adapters/mcp"; "parallelsandbox/hypervisor"; "parallelsandbox/schemas")
-- schemas/a.go --
package schemas
import "parallelsandbox/domain/box"
-- other/a.go --
package other
import "parallelsandbox/domain/box"
-- cmd/psbx/a.go --
package main
import ("parallelsandbox/adapters/rest"; "parallelsandbox/hypervisor/gvisor"; "parallelsandbox/cmd/internal/wire")
`),
		"domain/box/a.go must not import projections",
		"domain/box/a.go imports example.com/x",
		"domain/box/a_test.go imports cmd/internal/wire",
		"projections/boxes/a.go must not import adapters/sqlite",
		"hypervisor/a.go must not import hypervisor/fake",
		"hypervisor/gvisor/a.go must not import domain/ledger",
		"hypervisor/worker/a.go must not import adapters/memory",
		"adapters/rest/v1/a.go must not import adapters/mcp",
		"adapters/rest/v1/a.go must not import hypervisor",
		"schemas/a.go must not import domain/box",
		"other/a.go must not import domain/box",
	)
}

// world is what lets a package reach out of the program or become unrepeatable.
var world = []string{"os", "net", "syscall", "math/rand", "crypto/rand", "plugin", "unsafe"}

// alsoDomain is more that the domain leaves to others; a projection writes rows.
var alsoDomain = []string{"log", "database/sql"}

// harmless only looks like a part of the world.
var harmless = []string{"net/url", "net/netip"}

// clocks are the functions of package time that read or wait for the real clock.
var clocks = map[string]bool{
	"Now": true, "Since": true, "Until": true, "After": true, "AfterFunc": true,
	"NewTimer": true, "NewTicker": true, "Tick": true, "Sleep": true,
}

// askers may reach the world, through functions they are handed: a use case takes a
// clock as a value. They still never read one themselves.
var askers = []string{"domain/control", "domain/policy"}

// purity keeps the world out of what decides and what projects: a replay gives the same
// answer and causes nothing. Time and ids come in with the command.
func purity(t *tree) (bad []string) {
	for _, f := range t.code {
		if f.test || testKit(f.dir) || !under(f.dir, "domain", "projections") {
			continue
		}
		paths, names := f.imports()
		for _, p := range paths {
			outside := under(p, world...) || under(f.dir, "domain") && under(p, alsoDomain...)
			if outside && !under(p, harmless...) && !under(f.dir, askers...) {
				bad = append(bad, fmt.Sprintf("%s imports %s: what decides or projects must not touch the world", f.path, p))
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && names[x.Name] == "time" && clocks[sel.Sel.Name] && !waits(f.dir, sel.Sel.Name) {
					bad = append(bad, fmt.Sprintf("%s: time.%s: take the time from the command, or a clock as a function", t.at(sel), sel.Sel.Name))
				}
			}
			return true
		})
	}
	return bad
}

// waits says whether a package may use a timer: who asks the world may wait for its
// answer, and the engine of the projections for the next event. What time it is still
// comes from the clock they were handed.
func waits(dir, name string) bool {
	return (under(dir, askers...) || dir == "projections") && name != "Now" && name != "Since" && name != "Until"
}

func TestPurity(t *testing.T) { hold(t, purity) }

func TestPurityCanFail(t *testing.T) {
	breaks(t, purity, plant(t, `
-- domain/box/decide.go --
package box
import (clock "time"; "math/rand/v2"; "net/http"; "os"; "net/url"; "log/slog"; "database/sql")
var t, d = clock.Now(), clock.Second
-- domain/box/a_test.go --
package box
import ("time"; "os")
var t = time.Now()
-- domain/ledger/ledgertest/a.go --
package ledgertest
import ("time"; "os")
var t = time.Now()
-- domain/control/start.go --
package control
import ("time"; "crypto/rand")
var timer, now = time.NewTimer(1), time.Now
-- projections/boxes/a.go --
package boxes
import ("time"; "os/exec"; "log/slog"; "database/sql")
var c = time.After(time.Second)
-- projections/runner.go --
package projections
import "time"
var c, now = time.After(time.Second), time.Now()
-- adapters/rest/a.go --
package rest
import ("time"; "os")
var t = time.Now()
`),
		"projections/runner.go:3: time.Now",
		"domain/box/decide.go imports math/rand/v2",
		"domain/box/decide.go imports net/http",
		"domain/box/decide.go imports os",
		"domain/box/decide.go imports log/slog",
		"domain/box/decide.go imports database/sql",
		"domain/box/decide.go:3: time.Now",
		"domain/control/start.go:3: time.Now",
		"projections/boxes/a.go imports os/exec",
		"projections/boxes/a.go:3: time.After",
	)
}

// globals keeps start-up explicit: no init, and none of the libraries that make tests
// restate the code.
func globals(t *tree) (bad []string) {
	for _, f := range t.code {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				bad = append(bad, fmt.Sprintf("%s: no init: build it in cmd/internal/wire and hand it over", t.at(fn)))
			}
		}
		paths, _ := f.imports()
		for _, p := range paths {
			if b := path.Base(p); strings.Contains(p, "testify") || b == "gomock" || b == "gomega" {
				bad = append(bad, fmt.Sprintf("%s imports %s: compare plainly, and use the fake that passes the contract", f.path, p))
			}
		}
	}
	return bad
}

func TestGlobals(t *testing.T) { hold(t, globals) }

func TestGlobalsCanFail(t *testing.T) {
	breaks(t, globals, plant(t, `
-- adapters/rest/a.go --
package rest
func init() {}
type s struct{}
func (s) init() {}
-- adapters/rest/a_test.go --
package rest
import ("github.com/stretchr/testify/require"; "go.uber.org/mock/gomock")
`), "adapters/rest/a.go:2: no init", "testify/require", "uber.org/mock/gomock")
}
