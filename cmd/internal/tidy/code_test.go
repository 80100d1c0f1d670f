package tidy_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	maxFunc = 70  // lines of a function, its first and last line included
	maxFile = 520 // lines of a file: 500 is the wish, the rest is for the one that is nearly done
)

// sizes keeps functions and files at a size that is read and not skimmed. Tests may be long.
func sizes(t *tree) (bad []string) {
	for _, f := range t.code {
		if f.test {
			continue
		}
		if f.lines > maxFile {
			bad = append(bad, fmt.Sprintf("%s has %d lines, at most %d: split it by noun", f.path, f.lines, maxFile))
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := t.fset.Position(fn.End()).Line - t.fset.Position(fn.Pos()).Line + 1; n > maxFunc {
				bad = append(bad, fmt.Sprintf("%s: %s has %d lines, at most %d", t.at(fn), fn.Name.Name, n, maxFunc))
			}
		}
	}
	return bad
}

func TestSizes(t *testing.T) { hold(t, sizes) }

func TestSizesCanFail(t *testing.T) {
	function := func(lines int) string { return "func f() {\n" + strings.Repeat("\n", lines-2) + "}\n" }
	breaks(t, sizes, plant(t, "-- a/ok.go --\npackage a\n"+function(maxFunc)+
		"-- a/long.go --\npackage a\n"+function(maxFunc+1)+
		"-- a/long_test.go --\npackage a\n"+function(maxFunc+1)+
		"-- b/ok.go --\npackage b\n"+strings.Repeat("\n", maxFile-1)+
		"-- b/long.go --\npackage b\n"+strings.Repeat("\n", maxFile)),
		"a/long.go:2: f has 71 lines", "b/long.go has 521 lines")
}

// vague names say nothing about what a package gives, so everything ends up in it.
var vague = map[string]bool{
	"util": true, "utils": true, "common": true, "helper": true, "helpers": true, "types": true,
	"shared": true, "misc": true, "lib": true, "internal": true, "pkg": true, "models": true,
}

// packages wants every package to say what it is for, under a name that says it too.
func packages(t *tree) (bad []string) {
	comments := map[string][]*goFile{} // by folder: files with a package comment
	code := map[string]*goFile{}
	for _, f := range t.code {
		if f.test {
			continue
		}
		code[f.dir] = f
		if f.ast.Doc != nil {
			comments[f.dir] = append(comments[f.dir], f)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(code)) {
		name := code[dir].ast.Name.Name
		if vague[name] || vague[path.Base(dir)] {
			bad = append(bad, fmt.Sprintf("%s: a package named %s gives no hint what belongs into it", dir, name))
		}
		switch files := comments[dir]; {
		case len(files) == 0:
			bad = append(bad, fmt.Sprintf("%s has no package comment: say what it is for and in which order to read it", dir))
		case len(files) > 1:
			bad = append(bad, fmt.Sprintf("%s has two package comments, in %s and %s", dir, files[0].path, files[1].path))
		default:
			doc := files[0].ast.Doc.Text()
			if name != "main" && !strings.HasPrefix(doc, "Package "+name+" ") {
				bad = append(bad, fmt.Sprintf("%s: the package comment begins with %q, not with %q", files[0].path, strings.SplitN(doc, "\n", 2)[0], "Package "+name))
			}
			if len(strings.Fields(doc)) < 6 {
				bad = append(bad, fmt.Sprintf("%s: the package comment says too little: %q", files[0].path, strings.TrimSpace(doc)))
			}
		}
	}
	return bad
}

func TestPackages(t *testing.T) { hold(t, packages) }

func TestPackagesCanFail(t *testing.T) {
	breaks(t, packages, plant(t, `
-- a/a.go --
// Package a is here to show a good comment.
package a
-- a/b.go --
package a
-- a/a_test.go --
package a_test
-- b/b.go --
package b
-- c/c.go --
// Package c is here to show one of two comments.
package c
-- c/d.go --
// Package c is here to show two of two comments.
package c
-- d/d.go --
// These are the words of somebody who forgot the form.
package d
-- e/e.go --
// Package e does e.
package e
-- util/u.go --
// Package util holds what nobody found a place for.
package util
-- cmd/x/x.go --
// X is a program, and its comment begins with its name.
package main
`),
		"b has no package comment", "c has two package comments", "d/d.go: the package comment begins with",
		"e/e.go: the package comment says too little", "util: a package named util")
}

// wellKnown methods say by their name what they do.
var wellKnown = map[string]bool{
	"Error": true, "Unwrap": true, "Is": true, "As": true, "String": true, "Len": true, "Less": true, "Swap": true,
	"MarshalJSON": true, "UnmarshalJSON": true, "MarshalText": true, "UnmarshalText": true,
}

// comments wants every exported function and type of the domain to be explained: it is
// the part people read to learn the product. Values explain themselves, as the sentence
// of an error does.
func comments(t *tree) (bad []string) {
	miss := func(n ast.Node, name string) {
		bad = append(bad, fmt.Sprintf("%s: %s has no comment", t.at(n), name))
	}
	for _, f := range t.code {
		if f.test || !under(f.dir, "domain") {
			continue
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				plain := d.Recv != nil && (wellKnown[d.Name.Name] || !ast.IsExported(receiver(d)))
				if d.Name.IsExported() && d.Doc == nil && !plain {
					miss(d, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					ts, ok := s.(*ast.TypeSpec)
					if !ok || !ts.Name.IsExported() || ts.Doc != nil || ts.Comment != nil {
						continue
					}
					// One comment over a group serves for short names, not for what has fields.
					_, fields := ts.Type.(*ast.StructType)
					if grouped := d.Lparen.IsValid() && fields; d.Doc == nil || grouped {
						miss(ts, ts.Name.Name)
					}
				}
			}
		}
	}
	return bad
}

// receiver is the name of the type a method belongs to.
func receiver(d *ast.FuncDecl) (name string) {
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return name == ""
	})
	return name
}

func TestComments(t *testing.T) { hold(t, comments) }

func TestCommentsCanFail(t *testing.T) {
	breaks(t, comments, plant(t, `
-- domain/box/a.go --
package box
// Good is explained.
type Good struct{}
type Bare struct{}
type (
	Grouped int
	Beside int // explained beside
)
// Short names, together.
type (
	Short = int
	Event struct{}
)
func Bald() {}
func (*Good) Method() {}
func (Good) Error() string { return "" }
func (hidden) Method() {}
type hidden struct{}
const A, b = 3, 4
-- domain/box/a_test.go --
package box
func Helper() {}
-- adapters/rest/a.go --
package rest
func Bald() {}
`),
		"a.go:4: Bare", "a.go:6: Grouped", "a.go:12: Event", "a.go:14: Bald", "a.go:15: Method")
}

// unfinished matches what is left behind by work that was not done. It is put together
// so that this file does not match itself.
var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)

// promises finds notes about work somebody meant to do later.
func promises(t *tree) (bad []string) {
	for _, f := range t.code {
		for i, line := range strings.Split(string(t.text[f.path]), "\n") {
			if m := unfinished.FindString(line); m != "" {
				bad = append(bad, fmt.Sprintf("%s:%d: %s: do it now, or write an issue", f.path, i+1, m))
			}
		}
	}
	return bad
}

func TestPromises(t *testing.T) { hold(t, promises) }

func TestPromisesCanFail(t *testing.T) {
	breaks(t, promises, plant(t, "-- a/a.go --\npackage a\n// TO"+"DO: later\nvar x = 1 // FIX"+"ME\n// METHODOLOGY is fine\n"),
		"a/a.go:2: TO"+"DO", "a/a.go:3: FIX"+"ME")
}

// sleeps refuses tests that wait for the clock and hope: they are slow where they pass
// and fail where the machine is slow. Inside testing/synctest a sleep takes no time. One
// that plays slowness, instead of waiting for something, says so on its line: "not a wait".
// Between two looks at another process, for x; before(deadline); sleep, there is no other way.
func sleeps(t *tree) (bad []string) {
	for _, f := range t.code {
		paths, names := f.imports()
		if !f.test && !testKit(f.dir) || slices.Contains(paths, "testing/synctest") {
			continue
		}
		polls := map[token.Pos]bool{}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if loop, ok := n.(*ast.ForStmt); ok && loop.Cond != nil && loop.Post != nil {
				polls[loop.Post.Pos()] = true
			}
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" && !polls[sel.Pos()] {
				x, ok := sel.X.(*ast.Ident)
				line := t.fset.Position(sel.Pos()).Line
				played := strings.Contains(strings.Split(string(t.text[f.path]), "\n")[line-1], "// not a wait")
				if ok && names[x.Name] == "time" && !played {
					bad = append(bad, fmt.Sprintf("%s: time.Sleep in a test: wait for what you wait for, with a deadline", t.at(sel)))
				}
			}
			return true
		})
	}
	return bad
}

func TestSleeps(t *testing.T) { hold(t, sleeps) }

func TestSleepsCanFail(t *testing.T) {
	breaks(t, sleeps, plant(t, `
-- a/a_test.go --
package a
import "time"
func f() { time.Sleep(1) }
-- a/poll_test.go --
package a
import "time"
func f() { for end := time.Now(); time.Now().Before(end); time.Sleep(1) { time.Sleep(2) } }
func g() { for ; ; time.Sleep(1) {} }
-- a/slow_test.go --
package a
import "time"
func f() { time.Sleep(1) } // not a wait: it plays a slow reader
-- a/b_test.go --
package a
import ("time"; "testing/synctest")
func f() { time.Sleep(1) }
-- a/a.go --
package a
import "time"
func f() { time.Sleep(1) }
-- a/atest/a.go --
package atest
import "time"
func f() { time.Sleep(1) }
`), "a/a_test.go:3", "a/atest/a.go:3", "a/poll_test.go:3", "a/poll_test.go:4")
}
