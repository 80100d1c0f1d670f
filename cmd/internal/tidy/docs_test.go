package tidy_test

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents are the files in which we explain ourselves.
func documents(t *tree) (docs []string) {
	for _, f := range slices.Sorted(maps.Keys(t.text)) {
		if f == "README.md" || under(f, "docs") && strings.HasSuffix(f, ".md") {
			docs = append(docs, f)
		}
	}
	return docs
}

var (
	// mention is a path of ours, wherever it stands in a document. <x>, NNNN and vN are
	// placeholders, {a,b} are alternatives.
	mention = regexp.MustCompile("(?m)(?:^|[\\s(\\[`\"'|*])((?:cmd|domain|projections|adapters|hypervisor|schemas|docs|\\.ci)/[\\w./*<>{},+-]*)")
	link    = regexp.MustCompile(`\]\(([^)#\s]+)`)
	target  = regexp.MustCompile("(?m)(?:^|`|\\$ )make ([a-z]+)(?:`|$| +#| +[A-Z]+=)")
	blank   = regexp.MustCompile(`<[^>]*>|NNNN`)
	member  = regexp.MustCompile(`\.[A-Z]\w*$`) // domain/fault.Kinds
)

// mentions holds that whatever a document points at is there: paths, links, make targets.
func mentions(t *tree) (bad []string) {
	for _, doc := range documents(t) {
		text := string(t.text[doc])
		for _, m := range mention.FindAllStringSubmatch(text, -1) {
			for _, p := range alternatives(m[1]) {
				if !t.has(p) {
					bad = append(bad, fmt.Sprintf("%s mentions %s, which is not there", doc, m[1]))
				}
			}
		}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if p := path.Join(path.Dir(doc), m[1]); !strings.Contains(m[1], ":") && !t.has(p) {
				bad = append(bad, fmt.Sprintf("%s links to %s, which is not there", doc, m[1]))
			}
		}
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			if !regexp.MustCompile(`(?m)^` + m[1] + `:`).Match(t.text["Makefile"]) {
				bad = append(bad, fmt.Sprintf("%s says make %s, and the Makefile has no such target", doc, m[1]))
			}
		}
	}
	return bad
}

// alternatives turns what a document wrote into the patterns that must each exist.
func alternatives(p string) []string {
	if from := strings.Index(p, "{"); from >= 0 {
		if n := strings.Index(p[from:], "}"); n > 0 {
			var all []string
			for _, one := range strings.Split(p[from+1:from+n], ",") {
				all = append(all, alternatives(p[:from]+one+p[from+n+1:])...)
			}
			return all
		}
	}
	p = blank.ReplaceAllString(p, "*")
	p = strings.ReplaceAll(p, "/vN.", "/v*.")
	p = strings.TrimRight(p, ".,-*{<+")
	return []string{strings.TrimSuffix(p, "/")}
}

func (t *tree) has(pattern string) bool {
	match := func(p string) bool {
		ok, err := path.Match(pattern, p)
		return err == nil && ok
	}
	if slices.ContainsFunc(t.files, match) || slices.ContainsFunc(slices.Collect(maps.Keys(t.dirs)), match) {
		return true
	}
	if short := member.ReplaceAllString(pattern, ""); short != pattern {
		return t.has(short)
	}
	return false
}

func TestMentions(t *testing.T) { hold(t, mentions) }

func TestMentionsCanFail(t *testing.T) {
	breaks(t, mentions, plant(t, "-- domain/box/event.go --\npackage box\n"+
		"-- schemas/events/box.claimed/v1.golden.json --\n{}\n"+
		"-- docs/adr/0001-one.md --\nBack to [the map](../ARCHITECTURE.md) and [nowhere](../NOWHERE.md#x).\n"+
		"-- docs/ARCHITECTURE.md --\n"+`
Good: domain/box, `+"`domain/box/`"+`, domain/box/event.go. docs/adr/NNNN-<title>.md,
`+"`domain/<aggregate>/event.go`, `domain/{box}/event.go`, `schemas/events/<name>/vN.golden.json`"+`,
`+"`domain/box.Starting`"+`, ./domain/..., parallelsandbox/domain/gone, https://example.com/docs/x, /work/cmd/x.
Run `+"`make test`"+` and
make sense of it. See [one](adr/0001-one.md), [web](https://example.com/y).
Bad: domain/gone, `+"`domain/{box,tenant}/event.go`, `adapters/<door>/door.go`"+`, domain/gone.Thing
`+"`make nothing`"+` [two](adr/0002-two.md)
make none RUN=x
`+"-- README.md --\nStart in [the map](docs/ARCHITECTURE.md), [gone](ARCHITECTURE.md)\n"+
		"-- Makefile --\ntest: ## x\n"),
		"docs/adr/0001-one.md links to ../NOWHERE.md",
		"mentions domain/gone,", "mentions domain/{box,tenant}/event.go", "mentions adapters/<door>/door.go", "mentions domain/gone.Thing",
		"says make nothing", "says make none", "links to adr/0002-two.md", "README.md links to ARCHITECTURE.md")
}

var (
	ours = regexp.MustCompile("`((?:psbx [^`\\n]*)?--[a-z][^`\\n]*)`")
	flag = regexp.MustCompile(`--([a-z][a-z-]*)`)
)

// flags holds that a flag of psbx that a document speaks of is one.
func flags(t *tree) (bad []string) {
	known := []string{"help"}
	for _, f := range t.code {
		if f.test || !under(f.dir, "cmd/psbx") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok {
				known = append(known, strings.Trim(lit.Value, "\""))
			}
			return true
		})
	}
	for _, doc := range documents(t) {
		for _, span := range ours.FindAllStringSubmatch(string(t.text[doc]), -1) {
			for _, m := range flag.FindAllStringSubmatch(span[1], -1) {
				if !slices.Contains(known, m[1]) {
					bad = append(bad, fmt.Sprintf("%s speaks of --%s, and psbx has no such flag", doc, m[1]))
				}
			}
		}
	}
	return bad
}

func TestFlags(t *testing.T) { hold(t, flags) }

func TestFlagsCanFail(t *testing.T) {
	breaks(t, flags, plant(t, "-- cmd/psbx/serve.go --\npackage main\nconst a, b = \"spares\", \"freeze-after\"\n"+
		"-- README.md --\nGood: `--spares`, `psbx serve --freeze-after 5m`, `psbx serve --help`, `runsc checkpoint --leave-running`.\n"+
		"Bad: `--spare`, `psbx serve --spares --freezeafter 5m`\n"),
		"README.md speaks of --spare,", "README.md speaks of --freezeafter,")
}

var (
	adrName = regexp.MustCompile(`^docs/adr/(\d{4})-[a-z0-9-]+\.md$`)
	status  = regexp.MustCompile(`(?m)^Status: (accepted|proposed|superseded by (\d{4}))$`)
)

// decisions holds the form of the records in docs/adr: numbered once, and each with a status.
func decisions(t *tree) (bad []string) {
	number, superseded := map[string]string{}, map[string]string{}
	for _, doc := range documents(t) {
		if !under(doc, "docs/adr") || doc == "docs/adr/README.md" {
			continue
		}
		name := adrName.FindStringSubmatch(doc)
		if name == nil {
			bad = append(bad, fmt.Sprintf("%s is not named NNNN-what-was-decided.md", doc))
			continue
		}
		if other := number[name[1]]; other != "" {
			bad = append(bad, fmt.Sprintf("%s has the number of %s", doc, other))
		}
		number[name[1]] = doc
		switch s := status.FindSubmatch(t.text[doc]); {
		case s == nil:
			bad = append(bad, fmt.Sprintf(`%s has no line "Status: accepted", "Status: proposed" or "Status: superseded by NNNN"`, doc))
		case len(s[2]) > 0:
			superseded[doc] = string(s[2])
		}
	}
	for _, doc := range slices.Sorted(maps.Keys(superseded)) {
		if number[superseded[doc]] == "" {
			bad = append(bad, fmt.Sprintf("%s is superseded by %s, which is not there", doc, superseded[doc]))
		}
	}
	return bad
}

func TestDecisions(t *testing.T) { hold(t, decisions) }

func TestDecisionsCanFail(t *testing.T) {
	breaks(t, decisions, plant(t, `
-- docs/adr/0001-good.md --
Status: superseded by 0002
-- docs/adr/0002-good.md --
Status: accepted
-- docs/adr/0002-again.md --
Status: proposed
-- docs/adr/0003-silent.md --
We decided.
-- docs/adr/0004-odd.md --
Status: perhaps
-- docs/adr/0005-orphan.md --
Status: superseded by 0009
-- docs/adr/Notes.md --
Status: accepted
`), "has the number of", "0003-silent.md has no line", "0004-odd.md has no line", "0005-orphan.md is superseded by 0009", "Notes.md is not named")
}

var (
	invariantsHead = regexp.MustCompile(`(?m)^## .*[Ii]nvariants.*$`)
	itemStart      = regexp.MustCompile(`(?m)^(\d+)\. `)
	keeper         = regexp.MustCompile("`?((?:Test|Fuzz)\\w+)[\\w/]*`? in `?([\\w./-]*\\w)`?")
)

// invariants holds that every promise of the architecture names a test that keeps it, and
// that the test is there. docs/checklists/invariant.md gives the form.
func invariants(t *tree) (bad []string) {
	const doc = "docs/ARCHITECTURE.md"
	text := string(t.text[doc])
	head := invariantsHead.FindStringIndex(text)
	if head == nil {
		return []string{doc + ` has no section "## Invariants"`}
	}
	section := text[head[1]:]
	if end := regexp.MustCompile(`(?m)^## `).FindStringIndex(section); end != nil {
		section = section[:end[0]]
	}
	starts := itemStart.FindAllStringSubmatchIndex(section, -1)
	if len(starts) == 0 {
		return []string{doc + " has no numbered invariants"}
	}
	for i, s := range starts {
		item, number := section[s[0]:], section[s[2]:s[3]]
		if i+1 < len(starts) {
			item = section[s[0]:starts[i+1][0]]
		}
		_, kept, _ := strings.Cut(strings.Join(strings.Fields(item), " "), "Kept by: ")
		tests := keeper.FindAllStringSubmatch(kept, -1)
		if len(tests) == 0 {
			bad = append(bad, fmt.Sprintf(`%s: invariant %s does not say "Kept by: TestName in path"`, doc, number))
		}
		for _, k := range tests {
			if !t.hasTest(k[1], k[2]) {
				bad = append(bad, fmt.Sprintf("%s: invariant %s is kept by %s in %s, which is not there", doc, number, k[1], k[2]))
			}
		}
	}
	return bad
}

// hasTest finds a test function in a file or directly in a folder.
func (t *tree) hasTest(name, where string) bool {
	for _, f := range t.code {
		if !f.test || (f.path != where && f.dir != where) {
			continue
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == name {
				return true
			}
		}
	}
	return false
}

func TestInvariants(t *testing.T) { hold(t, invariants) }

func TestInvariantsCanFail(t *testing.T) {
	breaks(t, invariants, plant(t, `
-- domain/box/box_test.go --
package box_test
func TestGood() {}
func FuzzGood() {}
-- domain/box/box.go --
package box
func TestNot() {}
-- docs/ARCHITECTURE.md --
## Elsewhere
1. Not an invariant.
## Invariants
1. One. Kept by: TestGood in domain/box.
2. Two, on
   more lines. Kept
   by: `+"`TestGood/sub` in `domain/box/box_test.go`, `FuzzGood` in `domain/box`"+`.
3. Three is not kept.
4. Four. Kept by: TestGone in domain/box, TestGood in domain/box.
5. Five. Kept by: TestNot in domain/box and TestGood in domain/tenant.
## After
6. Not an invariant either.
`), "invariant 3 does not say", "invariant 4 is kept by TestGone", "invariant 5 is kept by TestNot", "invariant 5 is kept by TestGood in domain/tenant")
	breaks(t, invariants, plant(t, "-- docs/ARCHITECTURE.md --\n## Map\n"), "has no section")
	breaks(t, invariants, plant(t, "-- docs/ARCHITECTURE.md --\n## The invariants\nnone\n"), "has no numbered invariants")
}
