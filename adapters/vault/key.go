package vault

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// keyMark begins a key file and says what the key is for, so that a later kind of key can
// be told from this one: 32 bytes for AES-256-GCM, in base64.
const keyMark = "psbx-vault-key-v1:"

// seal is the name of a file sealed with the vault's key. It tells a wrong key at
// start-up, instead of at the first box that wants a secret, and it marks a folder
// whose key must not be made anew. A tenant's folder is hex, so it cannot clash.
const seal = "sealed-with"

// openKey reads the key or makes it, and holds it against the seal.
func openKey(dir, keyFile string) (cipher.AEAD, error) {
	sealPath := filepath.Join(dir, seal)
	sealed, err := os.ReadFile(sealPath)
	first := errors.Is(err, fs.ErrNotExist)
	if err != nil && !first {
		return nil, fmt.Errorf("vault: read %s: %w", sealPath, err)
	}
	if first {
		if err := refuseUsed(dir); err != nil {
			return nil, err
		}
		if err := makeKey(keyFile); err != nil {
			return nil, fmt.Errorf("vault: make the key file %s: %w", keyFile, err)
		}
	}
	a, err := readKey(keyFile)
	if err != nil {
		return nil, fmt.Errorf("vault: key file %s: %w", keyFile, err)
	}
	if first {
		if err := writeFile(sealPath, a.Seal(nil, nil, nil, []byte(seal)), os.Rename); err != nil {
			return nil, fmt.Errorf("vault: write %s: %w", sealPath, err)
		}
		return a, nil
	}
	if _, err := a.Open(nil, nil, sealed, []byte(seal)); err != nil {
		return nil, fmt.Errorf("vault: %s does not hold the key that %s was made with; put that key back, or start with an empty vault folder", keyFile, dir)
	}
	return a, nil
}

// refuseUsed keeps a vault that lost its seal from being taken for a new one. The
// seal is written before the first secret, so secrets without it are half a backup.
func refuseUsed(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("vault: look into %s: %w", dir, err)
	}
	for _, e := range entries {
		if e.IsDir() {
			return fmt.Errorf("vault: %s holds secrets but not the file %s that belongs to them; restore the whole folder and its key from your backup", dir, seal)
		}
	}
	return nil
}

// makeKey makes a key file unless there is one. The finished file appears at once
// and never replaces another: of two processes starting together one makes the key
// and both use it.
func makeKey(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key := make([]byte, 32)
	rand.Read(key) // never fails
	if err := makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	linkOnce := func(from, to string) error {
		defer os.Remove(from)
		if err := os.Link(from, to); !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	}
	return writeFile(path, []byte(keyMark+base64.StdEncoding.EncodeToString(key)+"\n"), linkOnce)
}

// readKey refuses a file that anybody but its owner may read. The mode is taken from
// the open file: what was checked is what is read.
func readKey(path string) (cipher.AEAD, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("it is missing, and the vault already holds secrets; restore it from your backup")
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("others may read it (mode %04o); run: chmod 600 %s", mode, path)
	}
	b, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return nil, err
	}
	text, ok := strings.CutPrefix(strings.TrimSpace(string(b)), keyMark)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) != 32 {
		return nil, errors.New("it does not hold a key") // a better error could quote the file
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
