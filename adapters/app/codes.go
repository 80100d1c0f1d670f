package app

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/tenant"
)

// CodeLife is how long a code to sign in with works.
const CodeLife = 15 * time.Minute

// Codes are what whoever runs the machine signs in with, each once. They are kept in a
// directory, so that a command makes one for a service that runs: a file for each code,
// named by its hash. Taking the file away is what redeems it, and only one can do that.
type Codes struct {
	Dir string
	Now func() time.Time
}

// Grant is whom a code signs in.
type Grant struct {
	Tenant  tenant.ID `json:"tenant"`
	Person  string    `json:"person"`
	Expires time.Time `json:"expires"`
}

var errCode = fault.New(fault.Unauthenticated, "this code has been used, has expired, or is not ours; psbx signin prints a new link")

// New makes a code, and clears away the ones that have expired.
func (c *Codes) New(of tenant.ID, person string) (code string, err error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return "", fmt.Errorf("codes to sign in with: %w", err)
	}
	c.sweep()
	raw := make([]byte, 20)
	rand.Read(raw)
	code = strings.ToLower(base32.StdEncoding.EncodeToString(raw))
	text, err := json.Marshal(Grant{of, person, c.Now().Add(CodeLife)})
	if err == nil {
		err = os.WriteFile(c.file(code), text, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("codes to sign in with: %w", err)
	}
	return code, nil
}

func (c *Codes) file(code string) string {
	sum := sha256.Sum256([]byte(code))
	return filepath.Join(c.Dir, hex.EncodeToString(sum[:]))
}

// Redeem takes a code, once.
func (c *Codes) Redeem(code string) (Grant, error) {
	path := c.file(code)
	g, err := readGrant(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Grant{}, errCode
	}
	if err == nil {
		err = os.Remove(path)
		if errors.Is(err, fs.ErrNotExist) { // somebody else was faster
			return Grant{}, errCode
		}
	}
	switch {
	case err != nil:
		return Grant{}, fault.New(fault.Unavailable, "the code could not be looked up; try again").Because(err)
	case !c.Now().Before(g.Expires):
		return Grant{}, errCode
	}
	return g, nil
}

func readGrant(path string) (g Grant, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &g)
	}
	return g, err
}

// sweep does what it can: a code that stays is refused all the same.
func (c *Codes) sweep() {
	files, _ := os.ReadDir(c.Dir)
	for _, f := range files {
		path := filepath.Join(c.Dir, f.Name())
		if g, err := readGrant(path); err == nil && !c.Now().Before(g.Expires) {
			_ = os.Remove(path)
		}
	}
}
