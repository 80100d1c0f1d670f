package box_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/ledger"
)

var update = flag.Bool("update", false, "draw the diagram in docs/life-of-a-box.md anew")

// page is about the life of a box, for people.
const page = "../../docs/life-of-a-box.md"

// The page shows what the decider does: every event that moves a box, from where and to where.
func TestTheDiagramIsDrawnFromTheCode(t *testing.T) {
	const begin, end = "```mermaid\n", "```\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, opened := strings.Cut(string(text), begin)
	shown, after, closed := strings.Cut(rest, end)
	if !opened || !closed {
		t.Fatalf("%s has no mermaid block", page)
	}
	drawn := diagram(t)
	if shown == drawn {
		return
	}
	if !*update {
		t.Fatalf("the diagram is no longer what the code does; go test ./domain/box -run Diagram -update draws\n%s", drawn)
	}
	if err := os.WriteFile(page, []byte(before+begin+drawn+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// diagram sends every command to a box with every history and draws where it goes.
func diagram(t *testing.T) string {
	codec, err := ledger.NewCodec(box.Events)
	if err != nil {
		t.Fatal(err)
	}
	type move struct{ from, to box.Phase }
	moves := map[move]map[string]bool{}
	for _, history := range histories {
		st := box.Decider.Fold(box.State{}, history...)
		for _, row := range matrix {
			events, err := box.Decide(st, row.cmd)
			if err != nil {
				continue
			}
			now := st
			for _, e := range events {
				was := now.Phase
				if now = box.Evolve(now, e); now.Phase == was {
					continue
				}
				entry, err := codec.Encode(e)
				if err != nil {
					t.Fatal(err)
				}
				m := move{was, now.Phase}
				if moves[m] == nil {
					moves[m] = map[string]bool{}
				}
				moves[m][entry.Type] = true
			}
		}
	}
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n")
	for _, from := range box.Phases {
		for _, to := range box.Phases {
			if names := moves[move{from, to}]; names != nil {
				fmt.Fprintf(&b, "    %s --> %s: %s\n", node(from), node(to), strings.Join(slices.Sorted(maps.Keys(names)), ", "))
			}
		}
	}
	for _, p := range box.Phases {
		if p.Terminal() {
			fmt.Fprintf(&b, "    %s --> [*]\n", node(p))
		}
	}
	return b.String()
}

func node(p box.Phase) string {
	if p == box.Absent {
		return "[*]"
	}
	return string(p)
}

// Every move that is legal is drawn, and no other: histories and commands reach them all.
func TestTheDiagramIsWhole(t *testing.T) {
	drawn := diagram(t)
	want := 0
	for from, tos := range legal {
		for _, to := range tos {
			want++
			if arrow := fmt.Sprintf("    %s --> %s: box.", node(from), node(to)); !strings.Contains(drawn, arrow) {
				t.Errorf("nothing leads from %q to %q", from, to)
			}
		}
	}
	if got := strings.Count(drawn, ": box."); got != want {
		t.Errorf("%d moves are drawn, %d are legal", got, want)
	}
}

// The page says what every state means, and who writes every event.
func TestThePageLeavesNothingOut(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, p := range box.Phases[1:] {
		rows = append(rows, string(p))
	}
	for _, e := range box.Events {
		rows = append(rows, "`"+e.Name+"`")
	}
	for _, row := range rows {
		if n := strings.Count(string(text), "\n| "+row+" | "); n != 1 {
			t.Errorf("%s has %d rows about %s", page, n, row)
		}
	}
}
