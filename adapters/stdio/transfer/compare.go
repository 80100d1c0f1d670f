package transfer

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"parallelsandbox/adapters/stdio/worktree"
	"parallelsandbox/domain/fault"
)

//go:embed compare.py
var comparer []byte

// mark is what an entry is, as far as the two sides compare it: a kind as in compare.py and the hash of its content.
type mark struct {
	kind byte
	sum  [sha256.Size]byte
}

// look reads e. An entry that is gone or unreadable has no mark, and is left to the sender to explain.
func look(e worktree.Entry) (mark, bool) {
	info, err := os.Lstat(e.Source)
	if err != nil {
		return mark{}, false
	}
	switch {
	case info.IsDir():
		return mark{kind: 'd'}, true
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := os.Readlink(e.Source)
		return mark{'l', sha256.Sum256([]byte(filepath.ToSlash(target)))}, err == nil
	case !info.Mode().IsRegular():
		return mark{}, false
	}
	m := mark{kind: 'f'}
	executable := info.Mode()&0o111 != 0
	if e.Executable != nil {
		executable = *e.Executable
	}
	if executable {
		m.kind = 'x'
	}
	f, err := os.Open(e.Source)
	if err != nil {
		return mark{}, false
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return mark{}, false
	}
	h.Sum(m.sum[:0])
	return m, true
}

// lookAll reads the entries with as many hands as there are processors.
func lookAll(ctx context.Context, entries []worktree.Entry, g *gauge, from, to float64) ([]mark, []bool, error) {
	marks, ok := make([]mark, len(entries)), make([]bool, len(entries))
	var done atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, e := range entries {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			marks[i], ok[i] = look(e)
			n := done.Add(1)
			g.set(from+(to-from)*float64(n)/float64(len(entries)), false, "read %d of %d files", n, len(entries))
			return nil
		})
	}
	return marks, ok, group.Wait()
}

// differing asks the box which of the entries differ from what is in dest there. The manifest and a comparing program are
// uploaded into the box's own scratch directory and run by sandbox_exec, so any server that keeps the contract will do.
// Where the box cannot compare, everything differs.
func (s *Service) differing(ctx context.Context, job *job, g *gauge) ([]worktree.Entry, error) {
	marks, ok, err := lookAll(ctx, job.entries, g, job.from, job.from+20)
	if err != nil {
		return nil, err
	}
	job.marks = map[string]mark{}
	var manifest bytes.Buffer
	var compared []worktree.Entry
	var differ []worktree.Entry
	for i, e := range job.entries {
		if !ok[i] {
			differ = append(differ, e)
			continue
		}
		job.marks[e.Path] = marks[i]
		compared = append(compared, e)
		fmt.Fprintf(&manifest, "%c %s %s\x00", marks[i].kind, hex.EncodeToString(marks[i].sum[:]), e.Path)
	}
	g.set(job.from+21, true, "comparing %d files with the box", len(compared))
	bits, err := s.compareInBox(ctx, job, manifest.Bytes(), len(compared))
	if err != nil {
		return nil, err
	}
	for i, e := range compared {
		if bits == nil || bits[i/8]&(1<<(i%8)) != 0 {
			differ = append(differ, e)
		}
	}
	return differ, nil
}

// compareInBox returns a bit for each record of the manifest, or nil if the box could not compare.
func (s *Service) compareInBox(ctx context.Context, job *job, manifest []byte, n int) ([]byte, error) {
	dir, err := os.MkdirTemp("", "parallelsandbox-sync-")
	if err != nil {
		return nil, fault.New(fault.Internal, "sandbox_sync: no temporary directory on this machine: %v", err)
	}
	defer os.RemoveAll(dir)
	var entries []worktree.Entry
	for name, content := range map[string][]byte{"manifest": manifest, "compare.py": comparer} {
		e := worktree.Entry{Path: name, Source: filepath.Join(dir, name)}
		if err := os.WriteFile(e.Source, content, 0o600); err != nil {
			return nil, fault.New(fault.Internal, "sandbox_sync: the list of files could not be written: %v", err)
		}
		entries = append(entries, e)
	}
	// Under a key the comparison is one of its own for each attempt, which is to find what is still missing.
	key := job.keyFor(fmt.Sprint("comparison ", job.attempt), func(w io.Writer) { w.Write(manifest) })
	scratch := ".sbx/sync-" + Nonce()
	if key != "" {
		scratch = ".sbx/" + key
	}
	if _, err := s.upload(ctx, upload{box: job.ID, dest: scratch, key: key, entries: entries, sent: func(int64) {}}); err != nil {
		return nil, err
	}
	note := "Compare local files with " + job.Dest + " before a sync"
	if job.Note != "" {
		note = job.Note + " (comparing files first)"
	}
	arguments := map[string]any{
		"id": job.ID, "timeoutSec": 600, "note": note,
		"cmd": fmt.Sprintf("python3 -I -S %s/compare.py %s/manifest %s", scratch, scratch, quote(job.Dest)),
	}
	if key != "" && s.tools.Takes("sandbox_exec", "idempotencyKey") {
		arguments["idempotencyKey"] = key
	}
	raw, err := s.tools.CallTool(ctx, "sandbox_exec", arguments)
	if err != nil {
		return nil, err
	}
	bits, err := readBits(raw, n)
	if err != nil {
		s.cfg.Log.Warn("the box could not compare files; all of them are sent", "because", err)
		return nil, nil
	}
	return bits, nil
}

// readBits takes the answer of compare.py apart.
func readBits(raw json.RawMessage, n int) ([]byte, error) {
	var run struct {
		ExitCode int    `json:"exitCode"`
		Stdout   string `json:"stdout"`
		Stderr   string `json:"stderr"`
	}
	if err := json.Unmarshal(raw, &run); err != nil {
		return nil, fmt.Errorf("read the answer of sandbox_exec: %w", err)
	}
	if run.ExitCode != 0 {
		return nil, fmt.Errorf("exit code %d: %.300s", run.ExitCode, run.Stderr)
	}
	lines := strings.Split(strings.TrimSpace(run.Stdout), "\n")
	var answer struct {
		N       int    `json:"n"`
		Differs []byte `json:"differs"` // base64 in JSON
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &answer); err != nil {
		return nil, fmt.Errorf("read the comparison: %w", err)
	}
	if answer.N != n {
		return nil, fmt.Errorf("the box compared %d entries of %d", answer.N, n)
	}
	z, err := zlib.NewReader(bytes.NewReader(answer.Differs))
	if err != nil {
		return nil, fmt.Errorf("read the comparison: %w", err)
	}
	bits, err := io.ReadAll(io.LimitReader(z, int64(n/8+2)))
	if err != nil {
		return nil, fmt.Errorf("read the comparison: %w", err)
	}
	if len(bits) != (n+7)/8 {
		return nil, errors.New("the comparison has the wrong length")
	}
	return bits, nil
}

// quote makes one word of s for a POSIX shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
