// Package npm makes the npm packages of parallelsandbox-mcp: the launcher in
// parallelsandbox-mcp/, and for each platform one that carries the static program.
// Programs are built when packages are made and are never committed.
package npm

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

//go:embed all:parallelsandbox-mcp
var launcher embed.FS

// Version is that of the next publication. The program has it too, and a test holds the two together.
const Version = "0.3.0"

const (
	launcherName = "parallelsandbox-mcp"
	carrierName  = "@parallelsandbox/mcp-"
	program      = "parallelsandbox/cmd/parallelsandbox-mcp"
	homepage     = "https://parallelsandbox.com"
)

// Platform is one that we build for, in the words of Go and of Node.
type Platform struct {
	Name         string // of Node: process.platform-process.arch
	GOOS, GOARCH string
}

// Platforms are all that the launcher knows.
var Platforms = []Platform{
	{"linux-x64", "linux", "amd64"},
	{"linux-arm64", "linux", "arm64"},
	{"darwin-x64", "darwin", "amd64"},
	{"darwin-arm64", "darwin", "arm64"},
	{"win32-x64", "windows", "amd64"},
}

// Options say what to pack.
type Options struct {
	Out       string   // directory for the tarballs; made if it is not there
	Version   string   // semantic version of all packages
	Platforms []string // names; empty: all
	Source    string   // a directory in the Go module; empty: the working directory
}

var semver = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// Pack builds the programs and returns the paths of the tarballs, the launcher's first. It needs go and npm.
func Pack(ctx context.Context, o Options) ([]string, error) {
	if !semver.MatchString(o.Version) {
		return nil, fmt.Errorf("version %q is not a semantic version such as 0.3.0", o.Version)
	}
	chosen, err := choose(o.Platforms)
	if err != nil {
		return nil, err
	}
	out, err := filepath.Abs(o.Out)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", o.Out, err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, fmt.Errorf("make %s: %w", out, err)
	}
	stage, err := os.MkdirTemp("", "parallelsandbox-npm-")
	if err != nil {
		return nil, fmt.Errorf("make a directory to pack in: %w", err)
	}
	defer os.RemoveAll(stage)
	p := packer{options: o, out: out, stage: stage}
	if err := p.launcher(ctx); err != nil {
		return nil, err
	}
	for _, platform := range chosen {
		if err := p.carrier(ctx, platform); err != nil {
			return nil, err
		}
	}
	return p.made, nil
}

func choose(names []string) ([]Platform, error) {
	if len(names) == 0 {
		return Platforms, nil
	}
	var chosen []Platform
	for _, name := range names {
		i := slices.IndexFunc(Platforms, func(p Platform) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no platform %q", name)
		}
		chosen = append(chosen, Platforms[i])
	}
	return chosen, nil
}

type packer struct {
	options    Options
	out, stage string
	made       []string
}

// manifest is the package.json of one package, as far as all of them agree.
func (p *packer) manifest(name, description string) map[string]any {
	return map[string]any{
		"name": name, "version": p.options.Version, "description": description,
		"license": "MIT", "homepage": homepage, "files": []string{"bin", "README.md", "LICENSE"},
		"engines": map[string]string{"node": ">=18"},
	}
}

func (p *packer) launcher(ctx context.Context) error {
	dir := filepath.Join(p.stage, launcherName)
	files, err := fs.Sub(launcher, launcherName)
	if err != nil {
		return fmt.Errorf("read the launcher: %w", err)
	}
	if err := os.CopyFS(dir, files); err != nil {
		return fmt.Errorf("copy the launcher: %w", err)
	}
	m := p.manifest(launcherName, "ParallelSandbox for agents that speak MCP over stdio")
	m["bin"] = map[string]string{launcherName: "bin/parallelsandbox-mcp.cjs"}
	m["keywords"] = []string{"mcp", "sandbox", "agent"}
	carriers := map[string]string{}
	for _, platform := range Platforms {
		carriers[carrierName+platform.Name] = p.options.Version
	}
	m["optionalDependencies"] = carriers
	return p.finish(ctx, dir, m)
}

func (p *packer) carrier(ctx context.Context, platform Platform) error {
	dir := filepath.Join(p.stage, platform.Name)
	binary := filepath.Join(dir, "bin", "parallelsandbox-mcp")
	if platform.GOOS == "windows" {
		binary += ".exe"
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w -X main.version="+p.options.Version, "-o", binary, program)
	cmd.Dir = p.options.Source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+platform.GOOS, "GOARCH="+platform.GOARCH, "GOFLAGS=")
	if err := run(cmd); err != nil {
		return fmt.Errorf("build for %s: %w", platform.Name, err)
	}
	nodeOS, cpu, _ := strings.Cut(platform.Name, "-")
	m := p.manifest(carrierName+platform.Name, "The parallelsandbox-mcp program for "+platform.Name)
	m["os"], m["cpu"], m["preferUnplugged"] = []string{nodeOS}, []string{cpu}, true
	readme := "# " + carrierName + platform.Name + "\n\nThe program of `parallelsandbox-mcp` for this platform. Install `parallelsandbox-mcp`, which brings it along.\n"
	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte(readme), 0o644); err != nil {
		return fmt.Errorf("pack for %s: %w", platform.Name, err)
	}
	return p.finish(ctx, dir, m)
}

// finish adds what every package has and makes the tarball.
func (p *packer) finish(ctx context.Context, dir string, manifest map[string]any) error {
	name := manifest["name"].(string)
	b, err := json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		return fmt.Errorf("describe %s: %w", name, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("describe %s: %w", name, err)
	}
	license, err := p.license(ctx)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "LICENSE"), license, 0o644); err != nil {
		return fmt.Errorf("license %s: %w", name, err)
	}
	cmd := exec.CommandContext(ctx, "npm", "pack", "--json", "--ignore-scripts", "--pack-destination", p.out)
	cmd.Dir = dir
	if err := run(cmd); err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	// npm writes the scope of @scope/name as a prefix of the file's name.
	file := strings.ReplaceAll(strings.TrimPrefix(name, "@"), "/", "-") + "-" + p.options.Version + ".tgz"
	made := filepath.Join(p.out, file)
	if _, err := os.Stat(made); err != nil {
		return fmt.Errorf("npm pack did not make %s: %w", made, err)
	}
	p.made = append(p.made, made)
	return nil
}

// license is that of the module.
func (p *packer) license(ctx context.Context) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}")
	cmd.Dir = p.options.Source
	root, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("find the module: %w", err)
	}
	return os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "LICENSE"))
}

// run gives an error that says what the command said.
func run(cmd *exec.Cmd) error {
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("%w: %s", exit, bytes.TrimSpace(said.Bytes()))
	}
	return err
}
