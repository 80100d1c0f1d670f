package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"parallelsandbox/hypervisor"
)

// diskMaker gives machines their writable disk. With a limit it is a sparse ext4 image of
// that size on a loop device, so that a full disk is the machine's own trouble; without,
// a directory. Above the image's root lies the overlay whose upper layer is on that disk.
type diskMaker struct {
	dir string
	mu  sync.Mutex // one template is made at a time
}

// mount makes the machine's root. files are put in the upper layer before anything of the
// image can be in the way: a link in an image must not lead our writes elsewhere.
func (k *diskMaker) mount(dir layout, s hypervisor.Spec, files map[string]string) error {
	disk, root := dir.disk(s.ID), dir.root(s.ID)
	upper, work := filepath.Join(disk, "upper"), filepath.Join(disk, "work")
	for _, d := range []string{disk, root} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if s.DiskMB > 0 {
		if err := k.format(s.DiskMB, dir.diskImage(s.ID)); err != nil {
			return fmt.Errorf("making a disk of %d MiB: %w", s.DiskMB, err)
		}
		if err := attach(dir.diskImage(s.ID), disk); err != nil {
			return fmt.Errorf("mounting the disk: %w", err)
		}
	}
	for _, d := range []string{upper, work, filepath.Join(upper, "etc")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(upper, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return overlay(s.RootFS, upper, work, root)
}

// remount puts the root together again from a disk that was used.
func remount(ctx context.Context, dir layout, s hypervisor.Spec) error {
	disk := dir.disk(s.ID)
	if s.DiskMB > 0 {
		// Two mounts of one file system would destroy it, and somebody who still looks
		// into the old one keeps it alive.
		if err := unused(ctx, dir.diskImage(s.ID)); err != nil {
			return err
		}
		if err := attach(dir.diskImage(s.ID), disk); err != nil {
			return fmt.Errorf("mounting the disk: %w", err)
		}
	}
	return overlay(s.RootFS, filepath.Join(disk, "upper"), filepath.Join(disk, "work"), dir.root(s.ID))
}

// unused waits until no loop device has the image.
func unused(ctx context.Context, image string) error {
	for wait := time.Millisecond; ; wait *= 2 {
		used, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
		if err != nil {
			return err
		}
		used = slices.DeleteFunc(used, func(file string) bool {
			name, err := os.ReadFile(file)
			return err != nil || strings.TrimSpace(string(name)) != image
		})
		if len(used) == 0 {
			return nil
		}
		if wait > time.Second {
			return fmt.Errorf("the disk %s is still in use by %s", image, used[0])
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

func overlay(lower, upper, work, at string) error {
	options := "lowerdir=" + escape(lower) + ",upperdir=" + escape(upper) + ",workdir=" + escape(work)
	if err := unix.Mount("overlay", at, "overlay", 0, options); err != nil {
		return fmt.Errorf("mounting the root: %w", err)
	}
	return nil
}

// escape protects a path in the option string of an overlay mount.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `:`, `\:`, `,`, `\,`).Replace(path)
}

// format makes an empty disk.
func (k *diskMaker) format(megabytes int, image string) error {
	template, err := k.template(megabytes)
	if err != nil {
		return err
	}
	return copySparse(image, template)
}

// attach mounts a disk. The loop device goes by itself with its last user: a crash before
// the mount leaves none, and the unmount frees it.
func attach(image, at string) error {
	dev, err := loop(image)
	if err != nil {
		return err
	}
	defer dev.Close()
	return unix.Mount(dev.Name(), at, "ext4", unix.MS_NODEV|unix.MS_NOATIME, "noinit_itable,discard")
}

// template is an empty file system of the size, made once: copying one is quicker than
// making one. It has no journal: a machine does not outlive a crash of its host, and
// nothing writes to the disk of one that is saved or parked.
func (k *diskMaker) template(megabytes int) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	path := filepath.Join(k.dir, "disk-"+strconv.Itoa(megabytes)+"m.ext4")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	next := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer os.Remove(next)
	out, err := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal",
		"-E", "lazy_itable_init=1,root_owner=0:0", next, strconv.Itoa(megabytes)+"M").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	return path, os.Rename(next, path)
}

// copySparse copies the parts of a file that hold data.
func copySparse(to, from string) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	if err := dst.Truncate(info.Size()); err != nil {
		return err
	}
	for at := int64(0); ; {
		data, err := src.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return err
		}
		hole, err := src.Seek(data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		if _, err := src.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := dst.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyN(dst, src, hole-data); err != nil {
			return err
		}
		at = hole
	}
}

// loop puts the image on a free loop device.
func loop(image string) (*os.File, error) {
	img, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer img.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("finding a free loop device: %w", err)
		}
		dev, err := os.OpenFile("/dev/loop"+strconv.Itoa(n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		config := unix.LoopConfig{Fd: uint32(img.Fd())}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &config)
		if err == nil {
			return dev, nil
		}
		dev.Close()
		if !errors.Is(err, unix.EBUSY) { // else somebody else took it first
			return nil, fmt.Errorf("configuring a loop device: %w", err)
		}
	}
}

// reserve stays free on the host whatever machines write.
const reserve = 1 << 30

func freeBytes(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return int64(fs.Bavail) * fs.Bsize, nil
}

// unwritten is what the disks of all machines may still grow by.
func (d *Driver) unwritten() (int64, error) {
	ids, err := d.List(context.Background())
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, id := range ids {
		var disk unix.Stat_t
		if err := unix.Stat(d.dir.diskImage(id), &disk); err == nil {
			sum += max(disk.Size-disk.Blocks*512, 0)
		}
	}
	return sum, nil
}
