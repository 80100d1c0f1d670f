package image

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// writeSources copies to dir the host's package sources of a release, and returns the
// files. Third parties' sources stay behind: an image holds what the distribution ships.
func writeSources(aptDir, suite, dir string) ([]string, error) {
	var lines, stanzas []string
	files, err := sourceFiles(aptDir)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("image: reading the host's package sources: %w", err)
		}
		if filepath.Ext(file) == ".sources" {
			stanzas = append(stanzas, stanzasOf(string(data), suite)...)
		} else {
			lines = append(lines, linesOf(string(data), suite)...)
		}
	}
	var out []string
	for name, text := range map[string]string{
		"release.list": strings.Join(lines, "\n"), "release.sources": strings.Join(stanzas, "\n\n"),
	} {
		if text == "" {
			continue
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			return nil, err
		}
		out = append(out, path)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("image: %s has no source of %s with the component main", aptDir, suite)
	}
	slices.Sort(out)
	return out, nil
}

func sourceFiles(aptDir string) ([]string, error) {
	var files []string
	for _, pattern := range []string{"sources.list", "sources.list.d/*.list", "sources.list.d/*.sources"} {
		found, err := filepath.Glob(filepath.Join(aptDir, pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	return files, nil
}

// linesOf picks `deb [options] uri suite component…` lines.
func linesOf(text, suite string) []string {
	var keep []string
	for line := range strings.SplitSeq(text, "\n") {
		entry, ok := strings.CutPrefix(strings.TrimSpace(line), "deb ")
		if !ok {
			continue
		}
		if open := strings.Index(entry, "["); open >= 0 {
			if end := strings.Index(entry, "]"); end > open {
				entry = entry[:open] + entry[end+1:]
			}
		}
		fields := strings.Fields(entry)
		if len(fields) >= 3 && ofRelease(fields[1], suite) && slices.Contains(fields[2:], "main") {
			keep = append(keep, strings.TrimSpace(line))
		}
	}
	return keep
}

// stanzasOf picks deb822 stanzas, whole: a key may be written out in one.
func stanzasOf(text, suite string) []string {
	var keep []string
	for stanza := range strings.SplitSeq(text, "\n\n") {
		fields := map[string][]string{}
		for line := range strings.SplitSeq(stanza, "\n") {
			if name, value, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "#") {
				fields[strings.ToLower(name)] = strings.Fields(value)
			}
		}
		binary := slices.Contains(fields["types"], "deb")
		enabled := !slices.Contains(fields["enabled"], "no")
		main := slices.Contains(fields["components"], "main")
		release := len(fields["suites"]) > 0 && !slices.ContainsFunc(fields["suites"], func(s string) bool { return !ofRelease(s, suite) })
		if binary && enabled && main && release {
			keep = append(keep, strings.TrimSpace(stanza))
		}
	}
	return keep
}

// ofRelease says whether a source's suite is the release or one of its updates.
func ofRelease(s, release string) bool {
	s = strings.TrimSuffix(s, "/")
	return s == release || strings.HasPrefix(s, release+"-") || s == release+"/updates"
}
