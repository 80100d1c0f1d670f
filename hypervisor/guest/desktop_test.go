package guest_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"strings"
	"testing"
	"time"

	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/boxd/protocol"
	"parallelsandbox/hypervisor/guest"
	"parallelsandbox/hypervisor/guest/guesttest"
	"parallelsandbox/hypervisor/guest/rfb"
)

func newDesktop(t testing.TB) guesttest.Box {
	t.Helper()
	box := boot(t, "desktop", hypervisor.Spec{ID: "aaaabbbbccccdddd3333", MemoryMB: 2048, Procs: 2048})
	box.Draws = true
	return box
}

// TestDesktop plays a person and an agent at one real desktop, from its boot to a thaw.
func TestDesktop(t *testing.T) {
	box := newDesktop(t)
	t.Run("as any display", func(t *testing.T) { // and its line is free again afterwards
		guesttest.Display(t, func(*testing.T) guesttest.Box { return box })
	})
	d := &desktop{Box: box, client: guest.New(box.Dial, guest.Options{})}
	t.Cleanup(func() { d.client.Close() })
	t.Run("nothing of a browser stays", d.noBrowsers)
	t.Run("nobody reaches it from outside", d.noPorts)
	t.Run("what is drawn is seen", d.drawn)
	t.Run("who may only look", d.looks)
	t.Run("typing", d.types)
	t.Run("frozen", d.frozen)
	t.Run("killed", d.killed)
}

type desktop struct {
	guesttest.Box
	client *guest.Client
	screen *rfb.Client
}

// patience is how long a busy host may need for anything.
const patience = time.Minute

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func (d *desktop) sh(t *testing.T, cmd string) string {
	t.Helper()
	out := guest.NewCapture(1<<20, 1<<20)
	e, err := d.client.Exec(within(t), protocol.ExecRequest{Cmd: cmd}, out)
	if err != nil || e.Code != 0 {
		t.Fatalf("%.200q: exit %d, %q, %v", cmd, e.Code, out.Stderr.String(), err)
	}
	return out.Stdout.String()
}

func (d *desktop) spawn(t *testing.T, cmd string) {
	t.Helper()
	if _, err := d.client.Spawn(within(t), protocol.ExecRequest{Cmd: cmd}); err != nil {
		t.Fatal(err)
	}
}

// connect makes a new connection to the display.
func (d *desktop) connect(t *testing.T) {
	t.Helper()
	conn, err := d.client.Display(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if d.screen, err = rfb.NewClient(within(t), conn); err != nil {
		t.Fatal(err)
	}
}

// shot is a picture of the display.
func (d *desktop) shot(t *testing.T) image.Image {
	t.Helper()
	file, _, err := d.screen.Shot(within(t))
	if err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return picture
}

func near(c color.Color, want color.RGBA) bool {
	r, g, b, _ := c.RGBA()
	off := func(a uint32, b uint8) bool { d := int(a>>8) - int(b); return d*d <= 9 }
	return off(r, want.R) && off(g, want.G) && off(b, want.B)
}

// shows waits until a place has a colour.
func (d *desktop) shows(t *testing.T, x, y int, want color.RGBA) {
	t.Helper()
	pace := time.NewTicker(200 * time.Millisecond) // a picture costs what the box could draw it with
	defer pace.Stop()
	var got color.Color
	for end := time.Now().Add(patience); time.Now().Before(end); <-pace.C {
		if got = d.shot(t).At(x, y); near(got, want) {
			return
		}
	}
	t.Fatalf("at %d, %d is %v, want %v", x, y, got, want)
}

// holds waits until a file of the box has a text.
func (d *desktop) holds(t *testing.T, file, want string) {
	t.Helper()
	e, err := d.client.Exec(within(t), protocol.ExecRequest{
		Cmd: `until [ "$(cat "$FILE" 2>/dev/null)" = "$WANT" ]; do sleep 0.1; done`,
		Env: map[string]string{"FILE": file, "WANT": want}, TimeoutMs: patience.Milliseconds(),
	}, nil)
	if err != nil || e.Code != 0 {
		t.Fatalf("%s holds %q, want %q; %v; the last keys were\n%s", file, d.sh(t, "cat "+file), want, err, d.sh(t, "tail -n 60 /work/keys 2>&1 || true"))
	}
}

func (d *desktop) with(t *testing.T, do func(h *rfb.Hand) error) {
	t.Helper()
	h, err := d.screen.Take(within(t))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	if err := do(h); err != nil {
		t.Fatal(err)
	}
}

func (d *desktop) noBrowsers(t *testing.T) {
	if left := d.sh(t, "pgrep -fl '[r]emote-debugging' || true; ls -A /tmp | grep -v X11 || true"); left != "" {
		t.Errorf("left: %q", left)
	}
}

// noPorts: the display has no password, so nothing but boxd may reach it.
func (d *desktop) noPorts(t *testing.T) {
	if ports := d.sh(t, "tail -n +2 -q /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == \"0A\"'"); ports != "" {
		t.Errorf("somebody listens: %q", ports)
	}
	if mode := d.sh(t, "stat -c %a /dev/psbx/rfb.sock"); mode != "600\n" {
		t.Errorf("the socket of the display has the mode %q", mode)
	}
}

func (d *desktop) drawn(t *testing.T) {
	d.connect(t)
	d.sh(t, "xsetroot -solid '#c92a2a'")
	d.shows(t, 900, 500, color.RGBA{0xc9, 0x2a, 0x2a, 0xff})
}

// looks: the pointer moves only for who may move it.
func (d *desktop) looks(t *testing.T) {
	conn, err := d.client.Display(within(t))
	if err != nil {
		t.Fatal(err)
	}
	allowed := false
	v := rfb.NewViewer(conn, func() bool { return allowed })
	defer v.Close()
	move := func(x, y string) {
		if _, err := io.WriteString(v, "\x05\x00"+x+y); err != nil {
			t.Fatal(err)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, v) }()
	if _, err := io.WriteString(v, "RFB 003.008\n\x01\x01"); err != nil {
		t.Fatal(err)
	}
	d.with(t, func(h *rfb.Hand) error { return h.Move(100, 100) })
	const where = "xdotool getmouselocation | cut -d' ' -f1,2"
	at := func(place string) {
		t.Helper()
		d.sh(t, `until [ "$(`+where+`)" = "`+place+`" ]; do sleep 0.1; done`)
	}
	at("x:100 y:100")
	move("\x01\x00", "\x01\x00")
	d.shot(t) // what came before it is done
	if got := d.sh(t, where); got != "x:100 y:100\n" {
		t.Fatalf("who may only look moved the pointer to %q", got)
	}
	allowed = true
	move("\x01\x00", "\x00\xf0")
	at("x:256 y:240")
}

// form is a page that tells its server what is typed into it and by which keys, and shows
// that it is there.
const form = `<!doctype html><meta charset=utf-8><title>form</title>
<body style="margin: 0; background: #5f3dc4"><textarea id=t style="position: absolute; left: 100px; top: 100px; width: 400px; height: 300px"></textarea>
<script>
let told, busy
const tell = async text => {
  if (busy) return
  for (busy = true; told !== text; text = t.value || text) await fetch("/", {method: "POST", body: told = text})
  busy = false
}
t.oninput = () => tell(t.value)
t.onfocus = () => tell("focused")
addEventListener("click", e => { if (e.target != t) document.body.style.background = e.detail == 2 ? "#2f9e44" : "#1971c2" })
onload = () => tell("loaded")
const keys = []
const log = e => keys.push(e.type + " " + (e.key || "") + (e.ctrlKey ? " with Control" : "") + (e.shiftKey ? " with Shift" : ""))
for (const type of ["keydown", "keyup", "paste", "blur", "load"]) addEventListener(type, log, true)
setInterval(() => keys.length && fetch("/keys", {method: "POST", body: keys.splice(0).join("\n") + "\n"}), 500)
</script>`

const formServer = `
import http.server
class Site(http.server.SimpleHTTPRequestHandler):
    def do_POST(self):
        told = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/keys": open("/work/keys", "ab").write(told)
        else: open("/work/typed", "wb").write(told)
        self.send_response(204); self.end_headers()
    def log_message(self, *args): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 8100), Site).serve_forever()
`

func (d *desktop) types(t *testing.T) {
	d.sh(t, fmt.Sprintf("mkdir -p /work/form && cat >/work/form/index.html <<'END'\n%s\nEND\ncat >/work/form/site.py <<'END'\n%s\nEND", form, formServer))
	d.spawn(t, "cd /work/form && exec python3 site.py")
	d.spawn(t, "until (: </dev/tcp/127.0.0.1/8100) 2>/dev/null; do sleep 0.2; done; exec chromium http://127.0.0.1:8100/")
	d.shows(t, 700, 600, color.RGBA{0x5f, 0x3d, 0xc4, 0xff})
	d.holds(t, "/work/typed", "loaded")
	d.with(t, func(h *rfb.Hand) error { return h.Click(within(t), 700, 600, rfb.Left, 1) })
	d.shows(t, 900, 600, color.RGBA{0x19, 0x71, 0xc2, 0xff})
	d.with(t, func(h *rfb.Hand) error { return h.Click(within(t), 800, 700, rfb.Left, 2) }) // elsewhere, or it is a third
	d.shows(t, 900, 600, color.RGBA{0x2f, 0x9e, 0x44, 0xff})
	d.with(t, func(h *rfb.Hand) error { return h.Click(within(t), 250, 350, rfb.Left, 1) })
	d.holds(t, "/work/typed", "focused")
	const english, japanese = "Hello, {World}~ é", "吾輩は猫である。名前はまだ無い。どこで生れたか頓と見当がつかぬ。何でも薄暗い所でニャーニャー泣いていた事だけは記憶している。"
	d.with(t, func(h *rfb.Hand) error { return h.Text(within(t), english+"\n") })
	d.holds(t, "/work/typed", english)
	d.with(t, func(h *rfb.Hand) error { return h.Text(within(t), japanese) })
	d.holds(t, "/work/typed", english+"\n"+japanese)
	d.with(t, func(h *rfb.Hand) error { return h.Key(within(t), "Control+a") })
	d.with(t, func(h *rfb.Hand) error { return h.Text(within(t), "한국어 a русский 😀") })
	d.holds(t, "/work/typed", "한국어 a русский 😀")
}

// frozen: what is on the display and what is being recorded survive a freeze.
func (d *desktop) frozen(t *testing.T) {
	if err := d.client.Record(within(t), "film"); err != nil {
		t.Fatal(err)
	}
	d.with(t, func(h *rfb.Hand) error { return h.Key(within(t), "Control+a") })
	d.with(t, func(h *rfb.Hand) error { return h.Text(within(t), "before") })
	d.holds(t, "/work/typed", "before")
	if err := d.Freezer.Save(within(t), d.ID); err != nil {
		t.Fatal(err)
	}
	if err := d.Freezer.Park(within(t), d.ID); err != nil {
		t.Fatal(err)
	}
	m, err := d.Freezer.Thaw(within(t), d.ID)
	if err != nil {
		t.Fatal(err)
	}
	d.client.Close()
	d.client = guest.New(m.Conn, guest.Options{})
	if h, err := d.client.Await(within(t), 15*time.Second); err != nil || h.Display == nil || !h.Display.Up {
		t.Fatalf("health %+v, %v", h.Display, err)
	}
	if err := d.Freezer.Resume(within(t), d.ID); err != nil {
		t.Fatal(err)
	}
	d.connect(t)
	d.shows(t, 900, 600, color.RGBA{0x2f, 0x9e, 0x44, 0xff})
	d.with(t, func(h *rfb.Hand) error { return h.Text(within(t), " and after 解凍") })
	d.holds(t, "/work/typed", "before and after 解凍")
	f, err := d.client.Finish(within(t), "film")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := io.Copy(io.Discard, f); err != nil || n != f.Size || f.Duration <= 0 || f.Duration > time.Minute {
		t.Fatalf("%d of %d bytes, %s, %v", n, f.Size, f.Duration, err)
	}
	const ask = "ffprobe -v error -show_entries stream=codec_name,pix_fmt,width,height -of csv=p=0 /var/lib/psbx/films/film.mp4 && ffmpeg -v error -i /var/lib/psbx/films/film.mp4 -f null -"
	if got := d.sh(t, ask); got != "h264,1280,800,yuv420p\n" {
		t.Errorf("the film is %q", got)
	}
}

// killed: a display that an agent ended comes back, and says meanwhile that it is away.
func (d *desktop) killed(t *testing.T) {
	d.sh(t, "pkill -9 Xvnc; pkill -9 Xtigervnc; true")
	<-d.screen.Done()
	if h, err := d.client.Await(within(t), 30*time.Second); err != nil || h.Display == nil || !h.Display.Up {
		t.Fatalf("health %+v, %v", h.Display, err)
	}
	d.connect(t)
	d.shows(t, 900, 500, color.RGBA{0x2d, 0x37, 0x48, 0xff})
	if n := strings.Count(d.sh(t, "until pgrep openbox; do sleep 0.2; done"), "\n"); n != 1 {
		t.Errorf("%d window managers", n)
	}
}
