package tidy_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// golden matches the frozen sample of one version of one event, or of what all carry.
var golden = regexp.MustCompile(`^schemas/(events|meta)/.*\bv[0-9]+\.golden\.json$`)

var errNoHistory = errors.New("the whole history is not here")

// goldens holds that stored events stay readable: what was once committed as the sample
// of a version is what some ledger holds, so it never changes and never goes. A new
// shape is a new version beside it.
func goldens(t *tree) ([]string, error) {
	first, err := firstCommits(t.root)
	if err != nil {
		return nil, err
	}
	var bad []string
	for _, path := range slices.Sorted(maps.Keys(first)) {
		was, err := git(t.root, "show", first[path]+":"+path)
		if err != nil {
			return nil, err
		}
		is, err := os.ReadFile(filepath.Join(t.root, path))
		switch {
		case errors.Is(err, os.ErrNotExist):
			bad = append(bad, fmt.Sprintf("%s is gone: ledgers that hold it must stay readable", path))
		case err != nil:
			return nil, err
		case !bytes.Equal(was, is):
			bad = append(bad, fmt.Sprintf("%s differs from commit %.9s: a new shape is a new version with an upcast", path, first[path]))
		}
	}
	return bad, nil
}

// firstCommits maps every golden that was ever committed to the commit that brought it.
func firstCommits(root string) (map[string]string, error) {
	shallow, err := git(root, "rev-parse", "--is-shallow-repository")
	if err != nil || strings.TrimSpace(string(shallow)) != "false" {
		return nil, fmt.Errorf("%w: %w", errNoHistory, errors.Join(err, errors.New("a full clone is needed")))
	}
	top, err := git(root, "rev-parse", "--show-cdup")
	if err != nil || strings.TrimSpace(string(top)) != "" {
		return nil, fmt.Errorf("%w: the folder lies inside another repository", errNoHistory)
	}
	log, err := git(root, "log", "--reverse", "--topo-order", "--no-renames", "--diff-filter=A", "--name-only", "--format=commit %H", "--", "schemas/events", "schemas/meta")
	if err != nil {
		return nil, err
	}
	first, commit := map[string]string{}, ""
	for line := range strings.Lines(string(log)) {
		line = strings.TrimSpace(line)
		if hash, ok := strings.CutPrefix(line, "commit "); ok {
			commit = hash
		} else if _, seen := first[line]; golden.MatchString(line) && !seen {
			first[line] = commit
		}
	}
	return first, nil
}

func git(root string, args ...string) ([]byte, error) {
	cmd := exec.Command("git", append([]string{"-C", root, "-c", "safe.directory=*", "-c", "core.quotepath=off"}, args...)...)
	for _, v := range os.Environ() { // a hook sets variables that point elsewhere
		if !strings.HasPrefix(v, "GIT_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

func TestGoldens(t *testing.T) {
	repo, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	bad, err := goldens(repo)
	if errors.Is(err, errNoHistory) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range bad {
		t.Error(v)
	}
}

func TestGoldensCanFail(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	root := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		if _, err := git(root, append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	commit := func() {
		t.Helper()
		run("add", "-A")
		run("commit", "-q", "-m", "x")
	}
	check := func(want ...string) {
		t.Helper()
		breaks(t, func(tr *tree) []string {
			bad, err := goldens(tr)
			if err != nil {
				t.Fatal(err)
			}
			return bad
		}, reload(t, root), want...)
	}
	if _, err := goldens(reload(t, root)); !errors.Is(err, errNoHistory) {
		t.Fatalf("without git: %v", err)
	}
	run("init", "-q")
	for _, name := range []string{"kept/v1", "changed/v1", "gone/v1", "back/v1"} {
		write(t, root, "schemas/events/box."+name+".golden.json", `{"name":"`+name+`"}`)
	}
	write(t, root, "schemas/events/box.kept/v1.schema.json", `{}`)
	commit()
	write(t, root, "schemas/meta/v1.golden.json", `{}`)
	commit()
	check()
	write(t, root, "schemas/meta/v1.golden.json", `{"a":1}`)
	check("schemas/meta/v1.golden.json differs")
	write(t, root, "schemas/meta/v1.golden.json", `{}`)

	write(t, root, "schemas/events/box.kept/v2.golden.json", `{}`)       // growing is fine
	write(t, root, "schemas/events/box.kept/v1.schema.json", `{"a":{}}`) // a schema is generated
	write(t, root, "schemas/events/box.changed/v1.golden.json", `{"name":"other"}`)
	if err := os.Remove(filepath.Join(root, "schemas/events/box.gone/v1.golden.json")); err != nil {
		t.Fatal(err)
	}
	check("box.changed/v1.golden.json differs", "box.gone/v1.golden.json is gone")
	commit() // committing it does not make it right
	check("box.changed/v1.golden.json differs", "box.gone/v1.golden.json is gone")

	// Nor does taking it out and putting another one in.
	if err := os.Remove(filepath.Join(root, "schemas/events/box.back/v1.golden.json")); err != nil {
		t.Fatal(err)
	}
	commit()
	write(t, root, "schemas/events/box.back/v1.golden.json", `{"name":"new"}`)
	commit()
	check("box.changed/v1.golden.json differs", "box.gone/v1.golden.json is gone", "box.back/v1.golden.json differs")
}
