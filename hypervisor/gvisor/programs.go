package gvisor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"parallelsandbox/hypervisor"
)

// programs are the binaries a machine runs on, kept by their content. Saved memory comes
// back only under the runsc that wrote it, and the agent's process has its binary mapped:
// neither may change under a machine that is parked, whatever is installed meanwhile. The
// copies share no inode with what they were copied from, because an installer may write
// into that one.
type programs struct {
	Runsc string
	Boxd  string
}

// keepPrograms copies the configured programs, and deletes those no machine needs.
func keepPrograms(dir layout, cfg Config) (programs, error) {
	var p programs
	var err error
	if p.Runsc, err = keep(dir.programs(), cfg.Runsc, "runsc"); err != nil {
		return p, err
	}
	if p.Boxd, err = keep(dir.programs(), cfg.Boxd, "boxd"); err != nil {
		return p, err
	}
	return p, sweepPrograms(dir, p)
}

// keep returns the path of the copy of a program, which it makes unless there is one.
func keep(dir, program, name string) (string, error) {
	src, err := os.Open(program)
	if err != nil {
		return "", err
	}
	defer src.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, src); err != nil {
		return "", err
	}
	kept := filepath.Join(dir, hex.EncodeToString(sum.Sum(nil)))
	if _, err := os.Stat(kept); err == nil {
		return filepath.Join(kept, name), nil
	}
	next, err := os.MkdirTemp(dir, "next-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(next)
	if _, err := src.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	if err := copyProgram(filepath.Join(next, name), src); err != nil {
		return "", fmt.Errorf("copying %s: %w", program, err)
	}
	if err := os.Rename(next, kept); err != nil {
		return "", err
	}
	return filepath.Join(kept, name), errors.Join(syncFile(kept), syncFile(dir))
}

func copyProgram(to string, src io.Reader) (err error) {
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	if _, err := io.Copy(dst, src); err != nil {
		return err
	}
	return dst.Sync()
}

// sweepPrograms deletes the copies that no record names.
func sweepPrograms(dir layout, now programs) error {
	needed := map[string]bool{}
	need := func(p programs) {
		needed[filepath.Dir(p.Runsc)], needed[filepath.Dir(p.Boxd)] = true, true
	}
	need(now)
	machines, err := os.ReadDir(dir.machines())
	if err != nil {
		return err
	}
	for _, m := range machines {
		rec, err := dir.load(hypervisor.ID(m.Name()))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		need(rec.Programs)
	}
	kept, err := filepath.Glob(filepath.Join(dir.programs(), "*"))
	if err != nil {
		return err
	}
	for _, k := range kept {
		if needed[k] {
			continue
		}
		if err := os.RemoveAll(k); err != nil {
			return err
		}
	}
	return nil
}
