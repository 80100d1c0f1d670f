package wire

import (
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

var lower32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Token returns that many random bits, rounded up to whole characters of [a-z2-7].
func Token(bits int) string {
	raw := make([]byte, (bits+7)/8)
	rand.Read(raw)
	return lower32.EncodeToString(raw)[:(bits+4)/5]
}

// NewID returns an id nobody can guess: 100 random bits in 20 characters.
func NewID() string { return Token(100) }

// keep returns what is in a file of mode 0600, and makes the file with make's answer
// when there is none. Two processes that start at once end up with the same content.
func keep(path string, make func() string) (string, error) {
	for range 2 {
		b, err := os.ReadFile(path)
		if err == nil {
			return strings.TrimSpace(string(b)), nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
		if err != nil {
			return "", err
		}
		_, err = tmp.WriteString(make() + "\n")
		err = errors.Join(err, tmp.Sync(), tmp.Close())
		if err == nil {
			err = os.Link(tmp.Name(), path) // fails when somebody else was first
		}
		os.Remove(tmp.Name())
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("%s can neither be read nor made", path)
}
