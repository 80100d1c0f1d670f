package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Files of the demo's working tree that git does not track.
const (
	untracked = "notes-of-today.txt"
	ignored   = ".build/left-over.bin"
)

// workingTree clones the repository this program was built in to dir, as an agent would
// have it open: with tracked files, one that is not committed yet, and one that
// .gitignore excludes.
func workingTree(ctx context.Context, repo, dir string) error {
	top, err := exec.CommandContext(ctx, "git", "-C", repo, "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("%s is not in a git working tree; run the demo from a clone of the repository, or name one with --repo", repo)
	}
	clone := exec.CommandContext(ctx, "git", "clone", "--quiet", "--no-hardlinks", string(top[:len(top)-1]), dir)
	if out, err := clone.CombinedOutput(); err != nil {
		return fmt.Errorf("git clone: %w: %s", err, out)
	}
	for name, text := range map[string]string{untracked: "not committed yet\n", ignored: "must not travel\n"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
