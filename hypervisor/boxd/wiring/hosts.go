package wiring

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"parallelsandbox/hypervisor/boxd/protocol"
)

const (
	hostsBegin = "# services of this box, kept by boxd: begin"
	hostsEnd   = "# services of this box, kept by boxd: end"
)

// writeHosts puts the names into the hosts file between two marks and leaves every other
// line alone. It writes in place: the file may be a mount of its own, which a rename would
// leave behind, and it never becomes shorter than a whole table while somebody reads it.
func writeHosts(file string, services []protocol.Service) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o644)
	if errors.Is(err, syscall.EROFS) || errors.Is(err, os.ErrPermission) {
		return protocol.Errorf(protocol.Internal, "the names of services cannot be set: %s is read-only", file)
	}
	if err != nil {
		return fmt.Errorf("set the names of services: %w", err)
	}
	defer f.Close()
	old, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("set the names of services: %w", err)
	}
	text := hostsText(string(old), services)
	if text == string(old) {
		return nil
	}
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		return fmt.Errorf("set the names of services: %w", err)
	}
	if err := f.Truncate(int64(len(text))); err != nil {
		return fmt.Errorf("set the names of services: %w", err)
	}
	return nil
}

func hostsText(old string, services []protocol.Service) string {
	var b strings.Builder
	ours := false
	for line := range strings.Lines(old) {
		switch strings.TrimSpace(line) {
		case hostsBegin:
			ours = true
		case hostsEnd:
			ours = false
		default:
			if !ours {
				b.WriteString(strings.TrimSuffix(line, "\n") + "\n")
			}
		}
	}
	if len(services) == 0 {
		return b.String()
	}
	b.WriteString(hostsBegin + "\n")
	for _, s := range services {
		b.WriteString("127.0.0.1\t" + s.Name + "\n")
	}
	b.WriteString(hostsEnd + "\n")
	return b.String()
}
