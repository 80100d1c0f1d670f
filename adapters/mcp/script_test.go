package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
	"parallelsandbox/domain/fault"
)

var update = flag.Bool("update", false, "write the answers of this run into testdata/script and ../../schemas/mcp")

// A transcript is a txtar archive. A file "request NAME" is a tool call: its content are
// the arguments, and the file "answer" after it is what came back. Words after NAME say
// who asks: "other" is another tenant. "raw" is a whole JSON-RPC message. The others set
// the stage: "guest" is the result of the next command, "fault KIND" its refusal, "file
// PATH" a file in the box, "secret NAME" a secret, "wire-refuses" and "panic" what the box does, "lose" the end of the machine under
// the box for a reason, "later" how long the clock goes on, "boot-fails" the reason the next one does not come up.
// $box is the box started last.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, a)
			if *update {
				if err := os.WriteFile(name, txtar.Format(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if want, have := string(txtar.Format(a)), string(txtar.Format(got)); want != have {
				t.Errorf("the transcript has changed; look at it, and run with -update if it is right\n%s", firstDifference(want, have))
			}
		})
	}
}

func firstDifference(want, have string) string {
	w, h := strings.Split(want, "\n"), strings.Split(have, "\n")
	for i := range min(len(w), len(h)) {
		if w[i] != h[i] {
			return fmt.Sprintf("line %d\nwant %s\nhave %s", i+1, w[i], h[i])
		}
	}
	return fmt.Sprintf("want %d lines, have %d", len(w), len(h))
}

type player struct {
	*world
	clients map[string]*client
	outputs map[string]*jsonschema.Schema
	box     string
	n       int
}

func play(t *testing.T, in *txtar.Archive) *txtar.Archive {
	w := newWorld(t, nil)
	p := &player{world: w, outputs: outputs(t, w.door), clients: map[string]*client{"": w.connect(w.Tenant.Key.Secret), "other": w.connect(w.Other.Key.Secret)}}
	out := &txtar.Archive{Comment: in.Comment}
	for _, f := range in.Files {
		if f.Name == "answer" {
			continue
		}
		out.Files = append(out.Files, f)
		body := strings.TrimSpace(strings.ReplaceAll(string(f.Data), "$box", p.box))
		words := strings.Fields(f.Name)
		who := ""
		if len(words) > 2 {
			who = words[2]
		}
		p.n++
		switch words[0] {
		case "request":
			out.Files = append(out.Files, p.ask(p.clients[who], words[1], callMessage(p.n, words[1], body)))
		case "raw":
			out.Files = append(out.Files, p.ask(p.clients[""], "", body))
		default:
			p.stage(words, body)
		}
	}
	return out
}

func (p *player) ask(c *client, tool, message string) txtar.File {
	status, body := c.post(message)
	var pretty bytes.Buffer
	fmt.Fprintf(&pretty, "%d ", status)
	if m := parse(p.t, body); m.Result != nil && m.Result.Structured != nil {
		if m.Result.Content[0].Text != compact(m.Result.Structured) {
			p.t.Errorf("the text is not the structured content: %s", body)
		}
		if s := p.outputs[tool]; s != nil {
			v, err := jsonschema.UnmarshalJSON(bytes.NewReader(m.Result.Structured))
			if err == nil {
				err = s.Validate(v)
			}
			if err != nil {
				p.t.Errorf("%s answered what its output schema does not say: %v", tool, err)
			}
		}
		var started startResult
		if tool == "sandbox_start" && json.Unmarshal(m.Result.Structured, &started) == nil {
			p.box = string(started.ID)
		}
		body = string(m.Result.Structured)
	} else if m.Result != nil && m.Result.IsError {
		body = m.Result.Content[0].Text
		pretty.WriteString("isError ")
	}
	if err := json.Indent(&pretty, []byte(strings.TrimSpace(body)), "", "  "); err != nil {
		p.t.Fatalf("%v: %s", err, body)
	}
	pretty.WriteByte('\n')
	return txtar.File{Name: "answer", Data: pretty.Bytes()}
}

// compact undoes what the escaping of the transport did.
func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return "not JSON"
	}
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(b.String())
}

func (p *player) stage(words []string, body string) {
	ctx := context.Background()
	switch words[0] {
	case "guest":
		var r control.Result
		if err := json.Unmarshal([]byte(body), &r); err != nil {
			p.t.Fatal(err)
		}
		p.Guests.OnExec(func(context.Context, box.ID, control.Command) (control.Result, error) { return r, nil })
	case "fault":
		p.Guests.OnExec(func(context.Context, box.ID, control.Command) (control.Result, error) {
			return control.Result{}, fault.New(fault.Kind(words[1]), "%s", body)
		})
	case "panic":
		p.Guests.OnExec(func(context.Context, box.ID, control.Command) (control.Result, error) { panic(body) })
	case "wire-refuses":
		p.Guests.OnWire(func(box.ID, control.Wiring) error { return fault.New(fault.Conflict, "%s", body) })
	case "file":
		p.Guests.PutFile(box.ID(p.box), words[1], controltest.File{Content: []byte(body), Archive: strings.HasSuffix(words[1], "/")})
	case "secret":
		if err := p.SetSecret(ctx, p.Tenant.Caller, words[1], []byte(body)); err != nil {
			p.t.Fatal(err)
		}
	case "lose":
		if err := p.Worker.Lose(ctx, box.ID(p.box), body); err != nil {
			p.t.Fatal(err)
		}
	case "later":
		d, err := time.ParseDuration(body)
		if err != nil {
			p.t.Fatal(err)
		}
		p.Clock.Advance(d)
	case "screen-fails":
		p.Screens.Fail(fault.New(fault.Kind(words[1]), "%s", body))
	case "screen-works":
		p.Screens.Fail(nil)
	case "person": // sits down when somebody is asked for, and does what the words say
		go p.person(box.ID(p.box), words[1], body)
	case "holds": // sits down at once, and stays
		who := control.Caller{Tenant: p.Tenant.ID, Person: words[1]}
		if _, err := p.TakeSeat(ctx, who, box.ID(p.box)); err != nil {
			p.t.Fatal(err)
		}
	case "boot-fails":
		p.Worker.FailNextBoot(body)
	default:
		p.t.Fatalf("a transcript cannot %q", words[0])
	}
}

// person waits until somebody is asked for, and hands the box back or declines.
func (p *player) person(id box.ID, does, message string) {
	ctx := context.Background()
	who := control.Caller{Tenant: p.Tenant.ID, Person: "ada"}
	for {
		head, err := p.Ledger.Head(ctx)
		if err != nil {
			p.t.Error(err)
			return
		}
		open, err := p.ListTakeovers(ctx, who, control.TakeoverQuery{Open: true})
		if err != nil {
			p.t.Error(err)
			return
		}
		if len(open) > 0 {
			if err := p.ReturnTakeover(ctx, who, open[0].Takeover, message, does == "declines"); err != nil {
				p.t.Error(err)
			}
			return
		}
		if err := p.Ledger.Watch(ctx, head); err != nil {
			p.t.Error(err)
			return
		}
	}
}
