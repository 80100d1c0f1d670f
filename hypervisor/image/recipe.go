package image

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// builderVersion is part of every digest: raise it when the same recipe gives another tree.
const builderVersion = 3

// Recipe is all that decides what is in an image.
type Recipe struct {
	Builder  int
	Suite    string   // Debian's name of the release
	Packages []string // besides the minimal system, in order
	Exclude  []string // paths packages may not unpack
	Dirs     []string // made empty at the end
	// Files are written over what the packages brought, by path.
	Files map[string]string `json:",omitempty"`
}

var basePackages = []string{"bash", "ca-certificates", "curl", "git", "iproute2", "nodejs", "procps", "python3"}

// profiles are the images we know to make.
var profiles = map[string]Recipe{
	"base":    {Packages: basePackages},
	"desktop": {Packages: slices.Concat(basePackages, desktopPackages), Files: desktopFiles()},
}

// recipeOf completes a profile with this host's release.
func recipeOf(profile string) (Recipe, error) {
	r, ok := profiles[profile]
	if !ok {
		return Recipe{}, fmt.Errorf("image: no profile %q; there is %s", profile, strings.Join(slices.Sorted(maps.Keys(profiles)), ", "))
	}
	suite, err := hostSuite("/etc/os-release")
	if err != nil {
		return Recipe{}, err
	}
	r.Builder, r.Suite = builderVersion, suite
	r.Exclude = []string{"/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*"}
	r.Dirs = []string{"/work"}
	return r, nil
}

// Digest names the recipe.
func (r Recipe) Digest() string {
	data, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// hostSuite is the release this host runs, whose sources it therefore has.
func hostSuite(osRelease string) (string, error) {
	f, err := os.Open(osRelease)
	if err != nil {
		return "", fmt.Errorf("image: finding this host's release: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "VERSION_CODENAME="); ok {
			return strings.Trim(name, `"`), nil
		}
	}
	return "", fmt.Errorf("image: %s names no VERSION_CODENAME; images are built on Debian", osRelease)
}
