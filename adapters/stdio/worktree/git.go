package worktree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// command is a git command in dir. Variables that name a repository are left out: a program started from a hook has
// them, and dir would not count.
func command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...)
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_NAMESPACE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "LC_ALL", "LANGUAGE":
		default:
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C", "GIT_OPTIONAL_LOCKS=0")
	return cmd
}

// output runs git and returns what it prints; the error carries git's own words.
func output(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := command(ctx, dir, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		said := strings.TrimSpace(stderr.String())
		if said == "" {
			said = err.Error()
		}
		return nil, fmt.Errorf("%w: git %s: %s", ErrGit, args[0], said)
	}
	return stdout.Bytes(), nil
}

// insideWorkTree tells a directory outside git from one where git does not work.
func insideWorkTree(ctx context.Context, dir string) (bool, error) {
	out, err := output(ctx, dir, "rev-parse", "--is-inside-work-tree")
	if err == nil {
		return strings.TrimSpace(string(out)) == "true", nil
	}
	if !errors.Is(err, ErrGit) {
		return false, err
	}
	abs, absErr := filepath.Abs(dir)
	if absErr != nil {
		return false, fmt.Errorf("find %s: %w", dir, absErr)
	}
	for at := abs; ; at = filepath.Dir(at) {
		if _, statErr := os.Lstat(filepath.Join(at, ".git")); statErr == nil {
			return false, err
		}
		if at == filepath.Dir(at) {
			return false, nil
		}
	}
}

// ignored reports whether dir itself is excluded by the repository around it.
func ignored(ctx context.Context, dir string) bool {
	return command(ctx, dir, "check-ignore", "-q", ".").Run() == nil
}

// repoName is the name of the top directory of the working tree, or nothing.
func repoName(ctx context.Context, dir string) string {
	out, err := output(ctx, dir, "rev-parse", "--show-toplevel")
	if err != nil {
		return ""
	}
	return filepath.Base(strings.TrimRight(string(out), "\r\n"))
}

// known is a path that git names.
type known struct {
	path       string
	repository bool // a submodule, or a repository nested in this one
	executable *bool
}

// trackedFiles reads the index. A path in conflict comes more than once.
func trackedFiles(ctx context.Context, dir string) ([]known, error) {
	out, err := output(ctx, dir, "ls-files", "--stage", "-z")
	if err != nil {
		return nil, err
	}
	var files []known
	for _, record := range splitNUL(out) {
		meta, name, ok := strings.Cut(record, "\t")
		mode, _, _ := strings.Cut(meta, " ")
		if !ok {
			return nil, fmt.Errorf("%w: git ls-files: %q is not an index entry", ErrGit, record)
		}
		k := known{path: name, repository: mode == "160000"}
		if runtime.GOOS == "windows" {
			executable := mode == "100755"
			k.executable = &executable
		}
		files = append(files, k)
	}
	return files, nil
}

// untrackedFiles lists what is neither tracked nor excluded. A nested repository comes as one name with a slash at its end.
func untrackedFiles(ctx context.Context, dir string) ([]known, error) {
	out, err := output(ctx, dir, "ls-files", "--others", "--exclude-standard", "-z")
	if err != nil {
		return nil, err
	}
	var files []known
	for _, name := range splitNUL(out) {
		bare, isDir := strings.CutSuffix(name, "/")
		files = append(files, known{path: bare, repository: isDir})
	}
	return files, nil
}

// ignoredNames are the names at the top of dir that are excluded, or that hold something excluded.
func ignoredNames(ctx context.Context, dir string) ([]string, error) {
	out, err := output(ctx, dir, "ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range splitNUL(out) {
		first, _, _ := strings.Cut(name, "/")
		if first != "" && first != "." {
			names = append(names, strings.ToValidUTF8(first, "\uFFFD"))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func splitNUL(b []byte) []string {
	return strings.FieldsFunc(string(b), func(r rune) bool { return r == 0 })
}

// Archive calls read with a tar of the clean tree of commit, as far as it lies under dir, and returns the full hash.
func Archive(ctx context.Context, dir, commit string, read func(io.Reader) error) (string, error) {
	out, err := output(ctx, dir, "rev-parse", "--verify", "--end-of-options", commit+"^{commit}")
	if errors.Is(err, ErrGit) {
		return "", fmt.Errorf("%w %q: %w", ErrCommit, commit, err)
	}
	if err != nil {
		return "", err
	}
	hash := strings.TrimSpace(string(out))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := command(ctx, dir, "archive", "--format=tar", hash)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return "", fmt.Errorf("git archive: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("%w: git archive: %w", ErrGit, err)
	}
	readErr := read(pipe)
	if readErr != nil {
		cancel()
	}
	waitErr := cmd.Wait()
	switch {
	case readErr != nil:
		return "", readErr
	case waitErr != nil:
		return "", fmt.Errorf("%w: git archive: %s", ErrGit, strings.TrimSpace(stderr.String()))
	}
	return hash, nil
}
