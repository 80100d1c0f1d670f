// Package vault keeps the values of tenants' secrets, encrypted at rest.
//
// The ledger knows the names of secrets and when they were set; the values exist
// here, in the boxes they are given to, and nowhere else. There is deliberately no
// call that lists or dumps values: a caller asks for the names it was allowed.
//
// Read vault.go for what is promised, key.go for the key's life, file.go for how a
// write survives a crash.
//
// Every secret is one file, <dir>/<hex of tenant>/<hex of name>, sealed with
// AES-256-GCM. The path is bound into the seal, so a file that was moved or swapped
// with another, even by someone with write access to the disk, does not open.
package vault

import (
	"context"
	"crypto/cipher"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"parallelsandbox/domain/fault"
)

const (
	// MaxValue is the largest value in bytes. A secret travels as one environment
	// variable and Linux takes 128 KiB for one, its name included.
	MaxValue = 64 << 10
	// MaxName bounds a tenant's id and a secret's name in bytes: written as hex they
	// have to fit into one file name.
	MaxName = 120
)

// Vault is safe for use by many goroutines, and by several processes that share the
// folder and the key.
type Vault struct {
	dir    string
	aead   cipher.AEAD
	rename func(from, to string) error // os.Rename; tests stop here, where a crash hurts most
}

// Open opens the vault in dir, and makes it and its key on the first start. It
// refuses a key file that others can read, a key that is not the one the vault was
// made with, and to make a new key where a vault already is: that would silently
// lose every secret.
func Open(dir, keyFile string) (*Vault, error) {
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("vault: make %s: %w", dir, err)
	}
	aead, err := openKey(dir, keyFile)
	if err != nil {
		return nil, err
	}
	if err := sweep(dir); err != nil {
		return nil, fmt.Errorf("vault: clean up %s: %w", dir, err)
	}
	return &Vault{dir: dir, aead: aead, rename: os.Rename}, nil
}

// Set stores value under name, in place of an older one. When it returns nil the
// value survives a crash; when it fails the older value still stands.
func (v *Vault) Set(ctx context.Context, tenant, name string, value []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	rel, err := place(tenant, name)
	if err != nil {
		return err
	}
	if len(value) > MaxValue {
		return fault.New(fault.TooLarge, "the secret %q has %d bytes and %d are allowed; keep large files outside and store a link or a key to them", name, len(value), MaxValue)
	}
	sealed := v.aead.Seal(nil, nil, value, []byte(rel))
	path := filepath.Join(v.dir, rel)
	if err := makeDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("vault: make the folder of %s: %w", tenant, err)
	}
	if err := writeFile(path, sealed, v.rename); err != nil {
		return fmt.Errorf("vault: write %q of %s: %w", name, tenant, err)
	}
	return nil
}

// Remove forgets a secret. Removing one that is not there is fine.
func (v *Vault) Remove(ctx context.Context, tenant, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	rel, err := place(tenant, name)
	if err != nil {
		return err
	}
	path := filepath.Join(v.dir, rel)
	if err := os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("vault: remove %q of %s: %w", name, tenant, err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("vault: remove %q of %s: %w", name, tenant, err)
	}
	return nil
}

// Values returns the value of each name. It gives all or nothing: a name without a
// value is a fault that says which.
func (v *Vault) Values(ctx context.Context, tenant string, names []string) (map[string]string, error) {
	values := make(map[string]string, len(names))
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		value, err := v.value(tenant, name)
		if err != nil {
			return nil, err
		}
		values[name] = value
	}
	return values, nil
}

func (v *Vault) value(tenant, name string) (string, error) {
	rel, err := place(tenant, name)
	if err != nil {
		return "", err
	}
	sealed, err := os.ReadFile(filepath.Join(v.dir, rel))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fault.New(fault.NotFound, "there is no secret named %q; set it first, or leave it out of the list", name)
	} else if err != nil {
		return "", fmt.Errorf("vault: read %q of %s: %w", name, tenant, err)
	}
	plain, err := v.aead.Open(nil, nil, sealed, []byte(rel))
	if err != nil {
		return "", fmt.Errorf("vault: open %q of %s: the file was changed or belongs elsewhere: %w", name, tenant, err)
	}
	return string(plain), nil
}

// place is where a secret lives below the vault's folder, and at the same time what
// its seal is bound to. Hex leaves no name that could climb out of the folder.
func place(tenant, name string) (string, error) {
	if tenant == "" || len(tenant) > MaxName {
		return "", fmt.Errorf("vault: tenant id of %d bytes, want 1 to %d", len(tenant), MaxName)
	}
	if name == "" || len(name) > MaxName {
		return "", fault.New(fault.Invalid, "a secret's name has 1 to %d bytes; this one has %d", MaxName, len(name))
	}
	return hex.EncodeToString([]byte(tenant)) + "/" + hex.EncodeToString([]byte(name)), nil
}
