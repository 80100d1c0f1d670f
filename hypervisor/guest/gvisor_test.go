package guest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/guest/guesttest"
	"parallelsandbox/hypervisor/gvisor"
	"parallelsandbox/hypervisor/image"
)

// newBox boots a real box, or skips where that is not possible; where TEST_REQUIRE names
// gvisor it fails instead.
func newBox(t testing.TB) guesttest.Box {
	t.Helper()
	return boot(t, "base", hypervisor.Spec{ID: "aaaabbbbccccdddd2222", MemoryMB: 1024, Procs: procs})
}

// boot boots a box of an image, of the size that a spec says.
func boot(t testing.TB, profile string, size hypervisor.Spec) guesttest.Box {
	t.Helper()
	cfg, root, err := backend(t, profile)
	if err != nil {
		if slices.Contains(strings.Split(os.Getenv("TEST_REQUIRE"), ","), "gvisor") {
			t.Fatalf("TEST_REQUIRE names gvisor: %v", err)
		}
		t.Skipf("no gVisor here: %v", err)
	}
	d, err := gvisor.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := errors.Join(d.Destroy(ctx, size.ID), d.Uninstall(ctx)); err != nil {
			t.Error(err)
		}
	})
	size.RootFS, size.Hostname = root, "box"
	m, err := d.Create(ctx, size)
	if err != nil {
		t.Fatal(err)
	}
	return guesttest.Box{
		Dial: m.Conn, WorkDir: "/work", HostsFile: "/etc/hosts", NamePort: 80, Procs: size.Procs, Resolves: true,
		Freezer: d, ID: size.ID,
	}
}

const procs = 200 // limit on processes of the box

// backend finds what a real box of an image needs.
func backend(t testing.TB, profile string) (gvisor.Config, string, error) {
	if os.Getuid() != 0 {
		return gvisor.Config{}, "", errors.New("running boxes needs root")
	}
	runsc := os.Getenv("PSBX_RUNSC")
	if runsc == "" {
		runsc = "../../.build/bin/runsc"
	}
	runsc, err := filepath.Abs(runsc)
	if err != nil {
		return gvisor.Config{}, "", err
	}
	if _, err := os.Stat(runsc); err != nil {
		return gvisor.Config{}, "", fmt.Errorf("no runsc: %w", err)
	}
	images := os.Getenv("PSBX_IMAGES")
	if images == "" {
		images = "/var/lib/psbx/images"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 9*time.Minute) // the image may have to be built
	defer cancel()
	img, err := image.Ensure(ctx, images, profile, os.Stderr)
	if err != nil {
		return gvisor.Config{}, "", err
	}
	dir, err := os.MkdirTemp("", "psbx-guest-") // shorter than a unix socket's longest path
	if err != nil {
		return gvisor.Config{}, "", err
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	boxd := filepath.Join(dir, "boxd")
	build := exec.CommandContext(ctx, "go", "build", "-o", boxd, "parallelsandbox/cmd/boxd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return gvisor.Config{}, "", fmt.Errorf("build boxd: %w: %s", err, out)
	}
	return gvisor.Config{StateDir: filepath.Join(dir, "state"), Runsc: runsc, Boxd: boxd}, img.Path, nil
}

func TestBox(t *testing.T) {
	guesttest.Run(t, func(t *testing.T) guesttest.Box { return newBox(t) })
}
