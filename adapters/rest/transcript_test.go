package rest_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"parallelsandbox/adapters/rest"
	"parallelsandbox/domain/box"
	"parallelsandbox/domain/control"
	"parallelsandbox/domain/control/controltest"
)

var update = flag.Bool("update", false, "write the answers into the transcripts")

// TestTranscripts replays testdata/transcript. A file is a list of parts: "request" is sent
// as it stands and the "response" after it must be the answer; "do" changes the world. Ids
// are written $BOX1, $KEY1 and so on, in the order in which they were made; ids that no
// request needs are <id>. The payment provider signs what says "Stripe-Signature: signed now". Every exchange must also be as schemas/openapi.yaml says.
func TestTranscripts(t *testing.T) {
	spec := loadSpec(t)
	files, err := filepath.Glob("testdata/transcript/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts (%v)", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) { replay(t, spec, file) })
	}
	if !t.Failed() {
		spec.everyOperationAnswered(t)
	}
}

func replay(t *testing.T, spec *spec, file string) {
	ar, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{world: open(t, func(c *rest.Config) {
		c.MaxUpload = 4 << 10
		c.Ready = []rest.Check{{Name: "ledger", Probe: func(context.Context) error { return nil }}}
	}), spec: spec, names: map[string]string{}}
	s.names["KEY1"], s.names["SECRET1"] = s.Tenant.Key.ID, s.Tenant.Key.Secret
	s.names["OTHER"] = s.Other.Key.Secret
	var got string
	for i, f := range ar.Files {
		switch f.Name {
		case "do":
			s.change(strings.Fields(s.filled(string(f.Data))))
		case "request":
			got = s.exchange(s.filled(string(f.Data)))
			if i+1 == len(ar.Files) || ar.Files[i+1].Name != "response" {
				t.Fatalf("part %d: a request without a response", i)
			}
		case "response":
			if *update {
				ar.Files[i].Data = []byte(got)
			} else if got != string(f.Data) {
				t.Errorf("%s, part %d\n--- request\n%s\n--- got\n%s\n--- want\n%s", file, i, ar.Files[i-1].Data, got, f.Data)
			}
		default:
			t.Fatalf("%s: no part is named %q", file, f.Name)
		}
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// stage is a world with names for what was made in it.
type stage struct {
	*world
	spec  *spec
	names map[string]string
	made  map[string]int
}

// call remembers an id under the next free name of its kind.
func (s *stage) call(kind, id string) {
	if s.made == nil {
		s.made = map[string]int{"KEY": 1, "SECRET": 1}
	}
	for name, known := range s.names {
		if known == id && strings.HasPrefix(name, kind) {
			return
		}
	}
	s.made[kind]++
	s.names[fmt.Sprintf("%s%d", kind, s.made[kind])] = id
}

// byLength lists names so that none is replaced inside a longer one.
func (s *stage) byLength() []string {
	names := slices.Collect(maps.Keys(s.names))
	slices.SortFunc(names, func(a, b string) int { return len(b) - len(a) })
	return names
}

func (s *stage) filled(text string) string {
	for _, name := range s.byLength() {
		text = strings.ReplaceAll(text, "$"+name, s.names[name])
	}
	return text
}

var (
	idRE        = regexp.MustCompile(`\b[a-z2-7]{20}\b`)
	signatureRE = regexp.MustCompile(`signature=[A-Za-z0-9_-]{43}`)
)

func (s *stage) named(text string) string {
	for _, name := range s.byLength() {
		if !strings.HasPrefix(name, "LINK") {
			text = strings.ReplaceAll(text, s.names[name], "$"+name)
		}
	}
	return signatureRE.ReplaceAllString(idRE.ReplaceAllString(text, "<id>"), "signature=<signature>")
}

// change carries out one line of a "do" part.
func (s *stage) change(words []string) {
	s.t.Helper()
	ctx, id := context.Background(), box.ID("")
	if len(words) > 1 {
		id = box.ID(words[1])
	}
	var err error
	switch words[0] {
	case "advance":
		var d time.Duration
		if d, err = time.ParseDuration(words[1]); err == nil {
			s.Clock.Advance(d)
		}
	case "exec":
		_, err = s.Exec(ctx, s.Tenant.Caller, control.ExecRequest{Box: id, Cmd: strings.Join(words[2:], " ")})
	case "stop":
		err = s.Stop(ctx, s.Tenant.Caller, id)
	case "settle":
		err = s.Meter().Apply(ctx)
	case "wire":
		_, err = s.Wire(ctx, s.Tenant.Caller, id, words[2], box.Mode(words[3]))
	case "lose":
		err = s.Worker.Lose(ctx, id, strings.Join(words[2:], " "))
	case "get":
		s.Guests.PutFile(id, words[2], controltest.File{Content: []byte(strings.Join(words[3:], " "))})
		var d control.Download
		if d, err = s.Get(ctx, s.Tenant.Caller, control.GetRequest{Box: id, Path: words[2]}); err == nil {
			s.call("LINK", strings.TrimPrefix(d.URL, controltest.Base))
		}
	case "shot":
		var d control.Download
		if d, err = s.Shot(ctx, s.Tenant.Caller, id, control.ScreenTarget); err == nil {
			s.call("LINK", strings.TrimPrefix(d.URL, controltest.Base))
		}
	case "record":
		if _, err = s.StartRecording(ctx, s.Tenant.Caller, id); err == nil {
			var made control.Recorded
			if made, err = s.StopRecording(ctx, s.Tenant.Caller, id); err == nil {
				s.call("LINK", strings.TrimPrefix(made.URL, controltest.Base))
			}
		}
	case "takeover":
		takeover := s.NewID()
		s.call("TAKEOVER", takeover)
		ask := box.RequestTakeover{Takeover: takeover, Note: strings.Join(words[2:], " "), Until: s.Now().Add(control.TakeoverLife), At: s.Now()}
		_, err = s.Boxes.Execute(ctx, box.StreamOf(id), ask, control.By("test", s.Now, s.NewID))
	case "boot-fails":
		s.Worker.FailNextBoot(strings.Join(words[1:], " "))
	case "vault":
		if words[1] == "down" {
			s.Vault.Fail(errors.New("disk on fire at /secret/place"))
		} else {
			s.Vault.Fail(nil)
		}
	default:
		err = fmt.Errorf("nothing is done by %q", words[0])
	}
	if err != nil {
		s.t.Fatalf("do %v: %v", words, err)
	}
}

// exchange sends a request as it is written and writes the answer down.
func (s *stage) exchange(text string) string {
	s.t.Helper()
	head, body, _ := strings.Cut(text, "\n\n")
	lines := strings.Split(strings.TrimSpace(head), "\n")
	method, path, _ := strings.Cut(lines[0], " ")
	content := []byte(strings.TrimSuffix(body, "\n"))
	if list, ok := strings.CutPrefix(string(content), "@tar "); ok {
		content = archive(s.t, strings.Fields(list))
	}
	req, err := http.NewRequest(method, s.server.URL+path, bytes.NewReader(content))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("X-Request-Id", "req-1")
	if len(content) > 0 && strings.ContainsRune("[{", rune(content[0])) {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Stripe-Signature" && value == "signed now" {
			value = s.stripe.Sign(content)
		}
		req.Header.Set(name, value)
	}
	resp, err := s.server.Client().Do(req)
	if err != nil {
		s.t.Fatalf("%s: %v", lines[0], err)
	}
	defer resp.Body.Close()
	var answer []byte
	if resp.StatusCode != http.StatusSwitchingProtocols { // after it come frames, without end
		if answer, err = io.ReadAll(resp.Body); err != nil {
			s.t.Fatal(err)
		}
	}
	s.spec.check(s.t, req, content, resp, answer)
	s.learn(method, path, resp, answer)
	return s.written(resp, answer)
}

// learn names what was made.
func (s *stage) learn(method, path string, resp *http.Response, answer []byte) {
	var made struct{ ID, Key, Seat string }
	if strings.HasSuffix(path, "/join") && resp.StatusCode == http.StatusOK && json.Unmarshal(answer, &made) == nil {
		s.call("SEAT", made.Seat)
		return
	}
	if resp.StatusCode != http.StatusCreated || json.Unmarshal(answer, &made) != nil || made.ID == "" {
		return
	}
	if strings.HasPrefix(path, "/v1/boxes") {
		s.call("BOX", made.ID)
	} else {
		s.call("KEY", made.ID)
		s.call("SECRET", made.Key)
	}
}

// Headers that say something about the API.
var told = []string{
	"Content-Type", "Location", "Allow", "Www-Authenticate", "Retry-After", "Content-Disposition", "Content-Range", "Accept-Ranges",
	"Cache-Control", "X-Content-Type-Options", "X-Request-Id", "Content-Security-Policy", "Etag",
}

func (s *stage) written(resp *http.Response, answer []byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", resp.Status)
	for _, name := range told {
		if value := resp.Header.Get(name); value != "" {
			fmt.Fprintf(&b, "%s: %s\n", textproto.CanonicalMIMEHeaderKey(name), value)
		}
	}
	if length := resp.Header.Get("Content-Length"); resp.Request.Method != http.MethodHead && resp.Request.URL.Path != "/metrics" && length != fmt.Sprint(len(answer)) && resp.StatusCode != http.StatusSwitchingProtocols {
		s.t.Errorf("%s %s: Content-Length is %q, the body has %d bytes", resp.Request.Method, resp.Request.URL.Path, length, len(answer))
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, answer, "", "  ") == nil {
		answer = pretty.Bytes()
	}
	if len(answer) > 0 && resp.Request.URL.Path != "/metrics" { // what is counted is another test's
		fmt.Fprintf(&b, "\n%s\n", answer)
	}
	return s.named(b.String())
}

// archive makes a gzip tar of name=content.
func archive(t testing.TB, files []string) []byte {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	out := tar.NewWriter(zip)
	for _, f := range files {
		name, content, _ := strings.Cut(f, "=")
		err := out.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o644})
		if err == nil {
			_, err = io.WriteString(out, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(out.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
