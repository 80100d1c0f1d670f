package gvisor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDoctorFindsNothingWhereMachinesRun holds the doctor to the truth: what runs the rest
// of these tests lacks nothing.
func TestDoctorFindsNothingWhereMachinesRun(t *testing.T) {
	b := need(t)
	for _, p := range Doctor(t.Context(), Config{StateDir: filepath.Join(t.TempDir(), "a", "b"), Runsc: b.runsc}) {
		if !strings.HasPrefix(p.What, "the firewall") { // the host's own affair
			t.Errorf("%s (%s)", p.What, p.Mend)
		}
	}
}

func TestDoctorOnRunsc(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the doctor says no more than that it needs root")
	}
	dynamic, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no dynamically linked program to try")
	}
	for path, want := range map[string]string{"/nowhere/runsc": "is not at", dynamic: "dynamically linked"} {
		found := checkRunsc(t.Context(), Config{Runsc: path})
		if len(found) != 1 || !strings.Contains(found[0].What, want) || !strings.Contains(found[0].Mend, "CGO_ENABLED=0") {
			t.Errorf("%s: %+v", path, found)
		}
	}
}

func TestDoctorNamesAMissingProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	found := checkPrograms(t.Context(), Config{})
	if len(found) != 3 || found[0].Mend != "apt-get install -y nftables" {
		t.Errorf("%+v", found)
	}
}
