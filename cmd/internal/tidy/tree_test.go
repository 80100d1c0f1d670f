package tidy_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// module is our own prefix in import paths.
const module = "parallelsandbox"

// tree is a repository as the rules see it. Paths are relative and use slashes.
type tree struct {
	root  string
	fset  *token.FileSet
	files []string            // every file that is not a tool's or a build's
	text  map[string][]byte   // their contents; binary files are left out
	code  []*goFile           // those that are Go, testdata left out
	dirs  map[string]struct{} // every folder that holds a file
}

type goFile struct {
	path, dir string
	test      bool // _test.go
	ast       *ast.File
	lines     int
}

// rule looks at a tree and says what breaks the rule, one sentence for each place.
type rule func(*tree) []string

// skipped are folders that nobody writes by hand.
var skipped = map[string]bool{".git": true, ".build": true, "node_modules": true}

func load(root string) (*tree, error) {
	t := &tree{root: root, fset: token.NewFileSet(), text: map[string][]byte{}, dirs: map[string]struct{}{}}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if skipped[d.Name()] {
				return fs.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		return t.add(filepath.ToSlash(rel), d)
	})
	return t, err
}

func (t *tree) add(rel string, d fs.DirEntry) error {
	t.files = append(t.files, rel)
	for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
		t.dirs[dir] = struct{}{}
	}
	if !d.Type().IsRegular() {
		return nil
	}
	src, err := os.ReadFile(filepath.Join(t.root, rel))
	if err != nil {
		return err
	}
	if bytes.IndexByte(src, 0) < 0 {
		t.text[rel] = src
	}
	if !strings.HasSuffix(rel, ".go") || strings.Contains("/"+rel, "/testdata/") {
		return nil
	}
	f, err := parser.ParseFile(t.fset, rel, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	t.code = append(t.code, &goFile{rel, path.Dir(rel), strings.HasSuffix(rel, "_test.go"), f, bytes.Count(src, []byte("\n"))})
	return nil
}

// at is file:line of a piece of code.
func (t *tree) at(n ast.Node) string {
	p := t.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// imports are the import paths of a file, and the name each one has in it.
func (f *goFile) imports() (paths []string, byName map[string]string) {
	byName = map[string]string{}
	for _, spec := range f.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has already refused it
		}
		paths = append(paths, p)
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		byName[name] = p
	}
	return paths, byName
}

// under says whether dir is one of the given folders or lies below one.
func under(dir string, folders ...string) bool {
	for _, f := range folders {
		if dir == f || strings.HasPrefix(dir, f+"/") {
			return true
		}
	}
	return false
}

// testKit says whether a folder is a package for tests only, such as ledgertest.
func testKit(dir string) bool { return strings.HasSuffix(path.Base(dir), "test") }

var repository = sync.OnceValues(func() (*tree, error) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		return nil, err
	}
	return load(root)
})

// hold fails the test for every place where this repository breaks the rule.
func hold(t *testing.T, r rule) {
	t.Helper()
	repo, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range r(repo) {
		t.Error(v)
	}
}

// plant makes a small repository out of a txtar archive.
func plant(t *testing.T, archive string) *tree {
	t.Helper()
	root := t.TempDir()
	for _, f := range txtar.Parse([]byte(archive)).Files {
		write(t, root, f.Name, string(f.Data))
	}
	return reload(t, root)
}

func write(t *testing.T, root, name, data string) {
	t.Helper()
	p := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func reload(t *testing.T, root string) *tree {
	t.Helper()
	tr, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// breaks wants exactly these violations, each given by a part of its sentence.
func breaks(t *testing.T, r rule, tr *tree, want ...string) {
	t.Helper()
	got := r(tr)
	rest := append([]string(nil), got...)
next:
	for _, w := range want {
		for i, g := range rest {
			if strings.Contains(g, w) {
				rest = append(rest[:i], rest[i+1:]...)
				continue next
			}
		}
		t.Errorf("the rule did not see %q", w)
	}
	for _, g := range rest {
		t.Errorf("the rule cried over nothing: %s", g)
	}
}

func TestTheTreeIsSeen(t *testing.T) {
	repo, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"go.mod", "Makefile", ".ci/run", "domain/ledger/ledger.go", "cmd/internal/tidy/tree_test.go"} {
		if len(repo.text[want]) == 0 {
			t.Errorf("%s is not seen", want)
		}
	}
	for _, f := range repo.code {
		if f.path == "hypervisor/hypervisor.go" && f.dir == "hypervisor" && !f.test && f.lines > 10 {
			return
		}
	}
	t.Error("hypervisor/hypervisor.go is not seen as code")
}
