package sqlite

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"parallelsandbox/domain/ledger"
)

// digest is the hash of a record and, through the one before it, of everything up to it. A noted
// digest fixes the whole history before it: nobody can change an event and keep the digest.
type digest [sha256.Size]byte

func (d digest) String() string { return hex.EncodeToString(d[:]) }

// next chains a record onto d. Every field is preceded by its length, so no two records hash the same bytes.
func (d digest) next(p ledger.Position, s ledger.Stream, rev ledger.Revision, w *row) digest {
	b := make([]byte, 0, 1024)
	b = append(b, d[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(p))
	b = binary.BigEndian.AppendUint64(b, uint64(rev))
	b = binary.BigEndian.AppendUint64(b, uint64(w.version))
	for _, f := range [...]string{string(s), w.id, w.kind, w.at, w.meta} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(f)))
		b = append(b, f...)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(len(w.data)))
	b = append(b, w.data...)
	return sha256.Sum256(b)
}
