package guesttest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"parallelsandbox/hypervisor/boxd/protocol"
	"parallelsandbox/hypervisor/guest"
)

// server is a small TCP server for the box. It prints its port, then serves each
// connection by its first line: "echo" sends all that follows back and, at its end, "bye";
// "stuck" reads no more; anything else is taken for HTTP and answered with the request
// itself, after a 101 if it asks for an upgrade, which then echoes.
const server = `
import socket, sys, threading
def talk(c):
    f = c.makefile('rb')
    first = f.readline()
    if first == b'echo\n':
        while True:
            d = f.read1(65536)
            if not d: break
            c.sendall(d)
        c.sendall(b'bye'); c.close(); return
    if first == b'stuck\n':
        threading.Event().wait()
    while first:
        head = first
        while True:
            line = f.readline()
            head += line
            if line in (b'\r\n', b''): break
        if b'upgrade: websocket' in head.lower():
            c.sendall(b'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n')
            while True:
                d = f.read1(65536)
                if not d: return
                c.sendall(d)
        c.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n' % len(head) + head)
        first = f.readline()
l = socket.socket(socket.AF_INET6 if sys.argv[1] == '::1' else socket.AF_INET)
l.bind((sys.argv[1], int(sys.argv[2]))); l.listen(200)
print(l.getsockname()[1], flush=True)
while True:
    c, _ = l.accept()
    threading.Thread(target=talk, args=(c,), daemon=True).start()
`

// serve starts the server in the box and returns its port and id.
func (s *suite) serve(t *testing.T, addr string, port int) (int, string) {
	t.Helper()
	b, err := s.client.Spawn(ctx(t), protocol.ExecRequest{
		Cmd: `exec python3 -c "$SERVER" ` + addr + " " + strconv.Itoa(port),
		Env: map[string]string{"SERVER": server},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.client.Kill(context.WithoutCancel(t.Context()), b.ID) })
	var got int
	eventually(t, "the server", func() bool {
		out := s.sh(t, "cat %s", b.Log)
		if strings.Contains(out, "Error") {
			t.Fatalf("server on %s:%d: %s", addr, port, out)
		}
		got, err = strconv.Atoi(strings.TrimSpace(out))
		return err == nil
	})
	return got, b.ID
}

func (s *suite) dial(t *testing.T) {
	t.Run("duplex", s.dialDuplex)
	t.Run("half closed", s.dialHalfClosed)
	t.Run("refused", s.dialRefused)
	t.Run("deadlines", s.dialDeadlines)
	t.Run("IPv6 only", s.dialIPv6)
	t.Run("HTTP", s.dialHTTP)
	t.Run("cut", s.dialCut)
	t.Run("stuck ones", s.dialStuck)
}

func (s *suite) connect(t *testing.T, port int, hello string) net.Conn {
	t.Helper()
	c, err := s.client.Dial(ctx(t), port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, hello); err != nil {
		t.Fatal(err)
	}
	return c
}

func (s *suite) dialDuplex(t *testing.T) {
	port, _ := s.serve(t, "127.0.0.1", 0)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			c := s.connect(t, port, "echo\n")
			text := strings.Repeat(strconv.Itoa(i), 1<<20)
			go func() { _, _ = io.WriteString(c, text) }()
			got := make([]byte, len(text))
			if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
				t.Errorf("connection %d: %v", i, err)
			}
			for range 20 { // as keystrokes do
				var key [1]byte
				if _, err := c.Write([]byte("k")); err != nil {
					t.Error(err)
				}
				if _, err := io.ReadFull(c, key[:]); err != nil || key[0] != 'k' {
					t.Errorf("key: %q, %v", key, err)
				}
			}
		})
	}
	wg.Wait()
}

func (s *suite) dialHalfClosed(t *testing.T) {
	port, _ := s.serve(t, "127.0.0.1", 0)
	c := s.connect(t, port, "echo\nrequest")
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "requestbye" {
		t.Fatalf("got %q, %v", got, err)
	}
}

func (s *suite) dialRefused(t *testing.T) {
	port, id := s.serve(t, "127.0.0.1", 0)
	if err := s.client.Kill(ctx(t), id); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Dial(ctx(t), port); !errors.Is(err, guest.ErrRefused) {
		t.Fatalf("got %v", err)
	}
	for _, bad := range []int{0, 65536} {
		_, err := s.client.Dial(ctx(t), bad)
		refused(t, err, protocol.Invalid, strconv.Itoa(bad))
	}
}

func (s *suite) dialDeadlines(t *testing.T) {
	port, _ := s.serve(t, "127.0.0.1", 0)
	c := s.connect(t, port, "echo\n")
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if _, err := io.ReadFull(c, b[:]); err != nil || b[0] != 'x' {
		t.Fatalf("after a deadline: %q, %v", b, err)
	}
	stuck := s.connect(t, port, "stuck\n")
	if err := stuck.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	var err error
	for err == nil {
		_, err = stuck.Write(make([]byte, 1<<20))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
}

func (s *suite) dialIPv6(t *testing.T) {
	if s.sh(t, "python3 -c \"import socket; socket.socket(socket.AF_INET6).bind(('::1', 0))\" 2>/dev/null && echo yes || echo no") == "no\n" {
		t.Skip("this box has no IPv6 loopback")
	}
	port, _ := s.serve(t, "::1", 0)
	c := s.connect(t, port, "echo\nhi")
	var b [2]byte
	if _, err := io.ReadFull(c, b[:]); err != nil || string(b[:]) != "hi" {
		t.Fatalf("got %q, %v", b, err)
	}
}

func (s *suite) dialHTTP(t *testing.T) {
	port, _ := s.serve(t, "127.0.0.1", 0)
	hc := s.http(port)
	for i := range 20 { // the second on a kept connection
		out := s.ask(t, hc, "http://anything/path?q="+strconv.Itoa(i))
		if !strings.HasPrefix(out, "GET /path?q="+strconv.Itoa(i)+" ") {
			t.Fatalf("got %q", out)
		}
	}
}

// http is a client whose connections all go to one port of the box.
func (s *suite) http(port int) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(c context.Context, _, _ string) (net.Conn, error) {
		return s.client.Dial(c, port)
	}}}
}

func (s *suite) ask(t *testing.T, hc *http.Client, url string) string {
	t.Helper()
	code, out := s.askCode(t, hc, url)
	if code != http.StatusOK {
		t.Fatalf("%s: %d %s", url, code, out)
	}
	return out
}

func (s *suite) askCode(t *testing.T, hc *http.Client, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx(t), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := hc.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func (s *suite) dialCut(t *testing.T) {
	port, _ := s.serve(t, "127.0.0.1", 0)
	c := s.connect(t, port, "echo\n")
	s.wire.cut()
	if _, err := bufio.NewReader(c).ReadString('\n'); !errors.Is(err, guest.ErrLost) {
		t.Fatalf("got %v", err)
	}
}

// dialStuck fills many connections whose other end reads nothing; small calls go on.
func (s *suite) dialStuck(t *testing.T) {
	port, _ := s.serve(t, "127.0.0.1", 0)
	full := make(chan bool)
	for range 100 {
		c := s.connect(t, port, "stuck\n")
		go func() {
			_ = c.SetWriteDeadline(time.Now().Add(2 * time.Second))
			for {
				if _, err := c.Write(make([]byte, 64<<10)); err != nil {
					full <- errors.Is(err, os.ErrDeadlineExceeded)
					return
				}
			}
		}()
	}
	for range 100 {
		if !<-full {
			t.Fatal("a stuck connection broke")
		}
	}
	began := time.Now()
	if r := s.run(t, protocol.ExecRequest{Cmd: "echo ok"}); r.out != "ok\n" || time.Since(began) > answerWithin {
		t.Fatalf("got %q after %s", r.out, time.Since(began))
	}
	s.upload(t, s.dir(t), Tar(Entry{Name: "f", Body: random(1 << 20)}))
}
