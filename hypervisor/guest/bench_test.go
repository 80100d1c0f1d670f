package guest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"testing"
	"time"

	"parallelsandbox/hypervisor/boxd/protocol"
	"parallelsandbox/hypervisor/guest"
	"parallelsandbox/hypervisor/guest/guesttest"
)

// each runs a benchmark against boxd as a plain process and in a real box.
func each(b *testing.B, run func(b *testing.B, c *guest.Client)) {
	for name, box := range map[string]func(testing.TB) guesttest.Box{"plain": newAgent, "box": newBox} {
		b.Run(name, func(b *testing.B) {
			c := guest.New(box(b).Dial, guest.Options{})
			defer c.Close()
			if _, err := c.Health(b.Context()); err != nil {
				b.Fatal(err)
			}
			run(b, c)
		})
	}
}

// percentiles runs f in a loop and reports the middle and the slowest of a hundred.
func percentiles(b *testing.B, f func() error) {
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := f(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs-p99")
}

func BenchmarkHealth(b *testing.B) {
	each(b, func(b *testing.B, c *guest.Client) {
		percentiles(b, func() error { _, err := c.Health(b.Context()); return err })
	})
}

func BenchmarkExec(b *testing.B) {
	each(b, func(b *testing.B, c *guest.Client) {
		percentiles(b, func() error {
			_, err := c.Exec(b.Context(), protocol.ExecRequest{Cmd: "true"}, nil)
			return err
		})
	})
}

// BenchmarkGet downloads one large file, and asks for health meanwhile.
func BenchmarkGet(b *testing.B) {
	const size = 256 << 20
	each(b, func(b *testing.B, c *guest.Client) {
		if _, err := c.Exec(b.Context(), protocol.ExecRequest{Cmd: "head -c " + strconv.Itoa(size) + " /dev/zero > big"}, nil); err != nil {
			b.Fatal(err)
		}
		ctx, stop := context.WithCancel(b.Context())
		done := make(chan []time.Duration)
		go func() { done <- healths(ctx, c) }()
		b.SetBytes(size)
		for b.Loop() {
			d, err := c.Get(b.Context(), "big")
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, d); err != nil || n != size {
				b.Fatal(n, err)
			}
			d.Close()
		}
		stop()
		took := <-done
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs-health-p50")
	})
}

func healths(ctx context.Context, c *guest.Client) []time.Duration {
	var took []time.Duration
	for {
		began := time.Now()
		if _, err := c.Health(ctx); err != nil {
			return append(took, time.Since(began))
		}
		took = append(took, time.Since(began))
	}
}

func BenchmarkPut(b *testing.B) {
	big := guesttest.Tar(guesttest.Entry{Name: "big", Body: string(make([]byte, 64<<20))})
	var small []guesttest.Entry
	for i := range 2000 {
		small = append(small, guesttest.Entry{Name: fmt.Sprintf("d%d/f%d", i/50, i), Body: "some text of a source file\n"})
	}
	for name, archive := range map[string][]byte{"one of 64 MiB": big, "2000 small": guesttest.Gzip(guesttest.Tar(small...))} {
		b.Run(name, func(b *testing.B) {
			each(b, func(b *testing.B, c *guest.Client) {
				b.SetBytes(int64(len(archive)))
				i := 0
				for b.Loop() {
					i++
					if _, err := c.Put(b.Context(), strconv.Itoa(i), bytes.NewReader(archive), protocol.PutLimits{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// BenchmarkExecOutput takes output as fast as it comes.
func BenchmarkExecOutput(b *testing.B) {
	const size = 64 << 20
	each(b, func(b *testing.B, c *guest.Client) {
		b.SetBytes(size)
		for b.Loop() {
			e, err := c.Exec(b.Context(), protocol.ExecRequest{Cmd: "head -c " + strconv.Itoa(size) + " /dev/zero"}, nil)
			if err != nil || e.Stdout.Seen != size {
				b.Fatal(e, err)
			}
		}
	})
}

// BenchmarkKeystroke is one byte there and back through a connection to a service.
func BenchmarkKeystroke(b *testing.B) {
	each(b, func(b *testing.B, c *guest.Client) {
		port := echoServer(b, c)
		k, err := c.Dial(b.Context(), port)
		if err != nil {
			b.Fatal(err)
		}
		defer k.Close()
		var key [1]byte
		percentiles(b, func() error {
			if _, err := k.Write(key[:]); err != nil {
				return err
			}
			_, err := io.ReadFull(k, key[:])
			return err
		})
	})
}

// echoServer starts a server in the box that sends back what it gets.
func echoServer(b *testing.B, c *guest.Client) int {
	job, err := c.Spawn(b.Context(), protocol.ExecRequest{Cmd: `exec python3 -c 'import socket
l = socket.create_server(("127.0.0.1", 0)); print(l.getsockname()[1], flush=True)
while True:
    s, _ = l.accept(); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while d := s.recv(65536): s.sendall(d)'`})
	if err != nil {
		b.Fatal(err)
	}
	for {
		out := guest.NewCapture(100, 100)
		if _, err := c.Exec(b.Context(), protocol.ExecRequest{Cmd: "cat " + job.Log}, out); err != nil {
			b.Fatal(err)
		}
		if port, err := strconv.Atoi(string(bytes.TrimSpace([]byte(out.Stdout.String())))); err == nil {
			return port
		}
	}
}
