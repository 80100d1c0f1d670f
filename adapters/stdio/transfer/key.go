package transfer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"parallelsandbox/adapters/stdio/worktree"
)

// keyFor is the idempotency key of one part of a sync, made of the agent's key and of what
// the part carries: the same part of the same call is done once, and files that have changed
// since are another part. Empty where the agent gave no key.
func (j *job) keyFor(part string, content func(io.Writer)) string {
	if j.IdempotencyKey == "" {
		return ""
	}
	h := sha256.New()
	fmt.Fprintf(h, "%d:%s %s ", len(j.IdempotencyKey), j.IdempotencyKey, part)
	content(h)
	return "sync-" + hex.EncodeToString(h.Sum(nil)[:20])
}

// keyOfFiles is the key of an upload: what is in the entries, as far as they could be read.
func (j *job) keyOfFiles(entries []worktree.Entry) string {
	return j.keyFor("files", func(w io.Writer) {
		for _, e := range entries {
			fmt.Fprintf(w, "%d:%s %c %x ", len(e.Path), e.Path, j.marks[e.Path].kind, j.marks[e.Path].sum)
		}
	})
}
