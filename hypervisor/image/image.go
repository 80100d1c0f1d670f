// Package image makes the root file systems machines start from: Debian trees built by
// mmdebstrap from the host's own package sources, each named by a hash of its recipe and
// built once.
//
// A directory of images holds one directory for each:
//
//	<profile>-<digest>/root         the tree; machines see it under an overlay, never writable
//	<profile>-<digest>/image.json   what it was made from
//	<profile>-<digest>.building/    one being built, or left by a builder that died
//	<profile>-<digest>.lock         held by who builds it
//
// Read this file, then recipe.go, build.go and sources.go.
package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

var (
	// ErrNotFound means there is no image under the digest.
	ErrNotFound = errors.New("image: no such image")
	// ErrInUse means a machine still runs from the image.
	ErrInUse = errors.New("image: in use by a machine")
)

// Image is a finished root file system.
type Image struct {
	Path    string // of the tree, for hypervisor.Spec.RootFS
	Digest  string // of the recipe, 64 hexadecimal digits
	Profile string
	Built   time.Time
	Recipe  Recipe
}

// Ensure returns the profile's image, building it first if it is not there: about a minute.
// Lines about a build go to progress, which may be nil. Callers at the same time, in
// whatever process, build it once.
func Ensure(ctx context.Context, dir, profile string, progress io.Writer) (Image, error) {
	recipe, err := recipeOf(profile)
	if err != nil {
		return Image{}, err
	}
	b := builder{dir: dir, tool: "mmdebstrap", progress: progress}
	return b.ensure(ctx, profile, recipe)
}

// List returns the finished images of a directory, the newest first.
func List(dir string) ([]Image, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("image: listing %s: %w", dir, err)
	}
	var images []Image
	for _, e := range entries {
		if !e.IsDir() || strings.HasSuffix(e.Name(), building) || strings.HasSuffix(e.Name(), removing) {
			continue
		}
		img, err := load(filepath.Join(dir, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // not an image
		}
		if err != nil {
			return nil, err
		}
		images = append(images, img)
	}
	slices.SortFunc(images, func(a, b Image) int { return b.Built.Compare(a.Built) })
	return images, nil
}

// Remove deletes the image with the digest, or with the beginning of one.
func Remove(dir, digest string) error {
	images, err := List(dir)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(images, func(i Image) bool { return digest != "" && strings.HasPrefix(i.Digest, digest) })
	if at < 0 {
		return fmt.Errorf("%w: %q", ErrNotFound, digest)
	}
	home := filepath.Dir(images[at].Path)
	used, err := mounted(images[at].Path)
	if err != nil {
		return err
	}
	if used {
		return fmt.Errorf("%w: %s", ErrInUse, images[at].Path)
	}
	// Renamed first, so that nobody starts from a half-deleted tree.
	if err := os.Rename(home, home+removing); err != nil {
		return fmt.Errorf("image: removing: %w", err)
	}
	return os.RemoveAll(home + removing)
}

// mounted reports whether the tree is a layer of some mount.
func mounted(tree string) (bool, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return false, fmt.Errorf("image: reading the mounts: %w", err)
	}
	for option := range strings.FieldsFuncSeq(string(mounts), func(r rune) bool { return strings.ContainsRune(" ,:=\n", r) }) {
		if option == tree {
			return true, nil
		}
	}
	return false, nil
}

const metaFile = "image.json"

func load(home string) (Image, error) {
	data, err := os.ReadFile(filepath.Join(home, metaFile))
	if err != nil {
		return Image{}, err
	}
	var img Image
	if err := json.Unmarshal(data, &img); err != nil {
		return Image{}, fmt.Errorf("image: reading %s: %w", filepath.Join(home, metaFile), err)
	}
	img.Path = filepath.Join(home, "root")
	return img, nil
}
