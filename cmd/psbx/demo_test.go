package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"parallelsandbox/cmd/internal/demo"
	"parallelsandbox/cmd/internal/wire"
)

// TestDemo plays the main job in real boxes through both stdio adapters, as make demo does.
func TestDemo(t *testing.T) {
	t.Parallel()
	needGVisor(t)
	adapters, err := adapters(os.Getenv("PSBX_TEST_NPM"))
	if err != nil {
		need(t, "adapter", err.Error())
	}
	adapters[1].Command = filepath.Join(filepath.Dir(os.Getenv("PSBX_BOXD")), "parallelsandbox-mcp")
	if _, err := os.Stat(adapters[1].Command); err != nil {
		need(t, "gvisor", "our adapter is not built: "+err.Error())
	}
	c := wire.Defaults()
	c.Images, c.Runsc, c.Boxd = os.Getenv("PSBX_IMAGES"), os.Getenv("PSBX_RUNSC"), os.Getenv("PSBX_BOXD")
	var out strings.Builder
	d := demo.Demo{Config: c, Repo: "../..", Adapters: adapters, Out: io.MultiWriter(&out, t.Output())}
	if err := d.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"ledger verify: ok", "audit: ok", "balance: ", "box.terminated", "As of revision"} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("the demo does not print %q", text)
		}
	}
}
