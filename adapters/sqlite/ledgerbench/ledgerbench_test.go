package ledgerbench_test

import (
	"os"
	"testing"
	"time"

	"parallelsandbox/adapters/sqlite/ledgerbench"
)

// A short run shows that both stores are measured and nothing is left behind. Targets are
// checked by the benchmark command, on a quiet machine, and not here.
func TestRun(t *testing.T) {
	d := 600 * time.Millisecond
	if s := os.Getenv("LEDGERBENCH"); s != "" {
		var err error
		if d, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	res, err := ledgerbench.Run(t.Context(), dir, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%v", res)
	for name, r := range map[string]ledgerbench.Rate{
		"file single": res.File.Single, "file group": res.File.Group,
		"ledger single": res.Ledger.Single, "ledger group": res.Ledger.Group,
	} {
		if r.PerSecond <= 0 || r.P99 <= 0 {
			t.Errorf("%s was not measured: %+v", name, r)
		}
	}
	if res.EventBytes < 300 || res.EventBytes > 340 {
		t.Errorf("an event is %d bytes, meant are about 317", res.EventBytes)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
