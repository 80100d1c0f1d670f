package image

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	building = ".building"
	removing = ".removing"
	aptDir   = "/etc/apt"
)

// builder makes images in a directory.
type builder struct {
	dir      string
	tool     string
	progress io.Writer
}

func (b builder) say(format string, args ...any) {
	if b.progress != nil {
		fmt.Fprintf(b.progress, format+"\n", args...)
	}
}

func (b builder) ensure(ctx context.Context, profile string, r Recipe) (Image, error) {
	home := filepath.Join(b.dir, profile+"-"+r.Digest()[:16])
	if img, err := load(home); err == nil {
		return img, nil
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return Image{}, fmt.Errorf("image: %w", err)
	}
	unlock, err := b.lock(ctx, home+".lock")
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	if img, err := load(home); err == nil {
		return img, nil // somebody built it while we waited
	}
	b.sweep()
	if err := b.build(ctx, home, Image{Digest: r.Digest(), Profile: profile, Recipe: r}); err != nil {
		return Image{}, fmt.Errorf("image: building %s: %w", profile, err)
	}
	return load(home)
}

// build makes the image beside its place and moves it there when it is whole.
func (b builder) build(ctx context.Context, home string, img Image) error {
	work := home + building
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := os.MkdirAll(filepath.Join(work, "sources"), 0o755); err != nil {
		return err
	}
	sources, err := writeSources(aptDir, img.Recipe.Suite, filepath.Join(work, "sources"))
	if err != nil {
		return err
	}
	started := time.Now()
	b.say("building the %s image (Debian %s: %s)", img.Profile, img.Recipe.Suite, strings.Join(img.Recipe.Packages, " "))
	if err := b.bootstrap(ctx, filepath.Join(work, "root"), img.Recipe, sources); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(work, "sources")); err != nil {
		return err
	}
	if err := writeFiles(filepath.Join(work, "root"), img.Recipe.Files); err != nil {
		return err
	}
	img.Built = time.Now().UTC()
	meta, err := json.MarshalIndent(img, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, metaFile), append(meta, '\n'), 0o644); err != nil {
		return err
	}
	// A name promises a whole tree, also after a power failure.
	if err := syncTree(work); err != nil {
		return err
	}
	if err := os.Rename(work, home); err != nil {
		return err
	}
	b.say("built the %s image in %s", img.Profile, time.Since(started).Round(time.Second))
	return nil
}

// bootstrap runs the tool in process and mount namespaces of its own: when it or we are
// killed, no process and no mount of it is left, so that deleting the tree deletes no more.
func (b builder) bootstrap(ctx context.Context, root string, r Recipe, sources []string) error {
	// One sync at the end replaces dpkg's after every file, here and in machines.
	args := []string{"--mode=root", "--variant=minbase", `--aptopt=Acquire::Languages "none"`, "--dpkgopt=force-unsafe-io"}
	for _, option := range proxyOptions(ctx) {
		args = append(args, "--aptopt="+option)
	}
	args = append(args, exclude(r.Exclude)...)
	args = append(args, "--include="+strings.Join(r.Packages, ","))
	for _, dir := range r.Dirs {
		args = append(args, `--customize-hook=mkdir -p "$1`+dir+`"`)
	}
	args = append(args, r.Suite, root)
	cmd := exec.CommandContext(ctx, b.tool, append(args, sources...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Cloneflags: unix.CLONE_NEWPID}
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return fmt.Errorf("%w; apt-get install mmdebstrap", err)
		}
		return err
	}
	var last string
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		line := strings.TrimPrefix(lines.Text(), "I: ")
		if !strings.HasPrefix(line, "W: ") {
			b.say("%s", line)
		}
		last = line
	}
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%s: %w: %s", b.tool, err, last)
	}
	return nil
}

// writeFiles puts files into the tree, and never beside it.
func writeFiles(tree string, files map[string]string) error {
	if len(files) == 0 {
		return nil
	}
	root, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer root.Close()
	for path, text := range files {
		path = strings.TrimPrefix(path, "/")
		if err := root.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// exclude has dpkg leave paths out, here and in machines, and deletes what came before dpkg
// was there. Given to the tool itself they would cost a process for every package.
func exclude(paths []string) (args []string) {
	const conf = `"$1/etc/dpkg/dpkg.cfg.d/90-exclude"`
	for _, path := range paths {
		args = append(args, `--extract-hook=echo 'path-exclude=`+path+`' >>`+conf, `--customize-hook=rm -rf "$1"`+path)
	}
	return args
}

// proxyOptions hands on how this host's apt reaches its sources.
func proxyOptions(ctx context.Context) []string {
	out, err := exec.CommandContext(ctx, "apt-config", "dump", "Acquire::http::Proxy", "Acquire::https::Proxy").Output()
	if err != nil {
		return nil
	}
	var options []string
	for line := range strings.SplitSeq(string(out), "\n") {
		line = strings.TrimSuffix(strings.TrimSpace(line), ";")
		if strings.HasPrefix(line, "Acquire::http") && !strings.HasSuffix(line, `""`) {
			options = append(options, line)
		}
	}
	return options
}

// lock waits for whoever builds the same image.
func (b builder) lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	told := false
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("image: locking %s: %w", path, err)
		}
		if !told {
			b.say("waiting for another build of the same image")
			told = true
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("image: waiting for another build: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// sweep deletes what builders that died have left: what is being built is locked.
func (b builder) sweep() {
	left, _ := filepath.Glob(filepath.Join(b.dir, "*"+removing))
	unfinished, _ := filepath.Glob(filepath.Join(b.dir, "*"+building))
	for _, dir := range unfinished {
		f, err := os.OpenFile(strings.TrimSuffix(dir, building)+".lock", os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			continue
		}
		defer f.Close()
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			left = append(left, dir)
		}
	}
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			b.say("could not delete %s, left by an earlier build: %v", dir, err)
		}
	}
}

func syncTree(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}
