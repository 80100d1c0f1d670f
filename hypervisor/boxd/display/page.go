package display

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"

	"parallelsandbox/hypervisor/boxd/process"
	"parallelsandbox/hypervisor/boxd/protocol"
)

var errSlow = errors.New("it took too long")

// Page is the picture of a page in a browser of its own, which fills the display meanwhile.
// One page at a time: each browser takes a few hundred megabytes.
func (s *Screen) Page(ctx context.Context, address string) ([]byte, error) {
	if err := protocol.CheckPage(address); err != nil {
		return nil, err
	}
	select {
	case <-s.browser:
		defer func() { s.browser <- struct{}{} }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := s.Await(ctx); err != nil {
		return nil, err
	}
	profile, err := os.MkdirTemp(s.at.Scratch, ".page-")
	if err != nil {
		return nil, fmt.Errorf("display: a profile for the browser: %w", err)
	}
	defer os.RemoveAll(profile)
	b, err := s.browse(profile)
	if err != nil {
		return nil, err
	}
	defer b.end()
	return b.picture(ctx, address)
}

// browser is a running browser.
type browser struct {
	*devtools
	screen  *Screen
	proc    *process.Process
	marker  process.Marker
	said    *tail
	pipes   []*os.File
	session string // of its one page
	frame   string // of that page, without those within it
	blank   string // what is in the frame before ours
}

// browse starts a browser.
func (s *Screen) browse(profile string) (*browser, error) {
	b := &browser{screen: s, marker: process.Marker("page-" + profile)}
	from, tell, err := process.Pipe()
	if err != nil {
		return nil, err
	}
	defer syscall.Close(tell)
	ask, to, err := commandPipe()
	if err != nil {
		from.Close()
		return nil, err
	}
	defer syscall.Close(ask)
	b.pipes = []*os.File{from, to}
	said, out, err := newTail()
	if err != nil {
		b.closePipes()
		return nil, err
	}
	defer syscall.Close(out)
	b.said = said
	env := environment(process.MarkerName+"="+string(b.marker), "TMPDIR="+profile)
	b.proc, err = s.start(out, []int{ask, tell}, env, s.at.Browser,
		"--remote-debugging-pipe", "--user-data-dir="+profile, "--kiosk", "--disable-extensions", "--mute-audio", "--no-zygote",
		"--window-position=0,0", fmt.Sprintf("--window-size=%d,%d", protocol.DisplayWidth, protocol.DisplayHeight), "about:blank")
	if err != nil {
		b.closePipes()
		return nil, fmt.Errorf("display: start the browser: %w", err)
	}
	b.devtools = newDevtools(from, to)
	return b, nil
}

// commandPipe makes a pipe whose far end a child reads.
func commandPipe() (child int, ours *os.File, err error) {
	var fd [2]int
	if err := syscall.Pipe2(fd[:], syscall.O_CLOEXEC); err != nil {
		return -1, nil, os.NewSyscallError("pipe2", err)
	}
	return fd[0], os.NewFile(uintptr(fd[1]), "pipe"), nil
}

func (b *browser) closePipes() {
	for _, f := range b.pipes {
		_ = f.Close()
	}
}

// end leaves nothing of the browser.
func (b *browser) end() {
	b.screen.procs.KillTree(b.proc.PID, b.marker)
	<-b.proc.Done()
	b.closePipes()
}

// picture opens the page and takes its picture once it is loaded.
func (b *browser) picture(ctx context.Context, address string) ([]byte, error) {
	if err := b.attach(ctx); err != nil {
		return nil, b.failed(ctx, err)
	}
	if err := b.load(ctx, address); err != nil {
		return nil, err
	}
	b.settle(ctx)
	var shot struct{ Data string }
	ctx, cancel := context.WithTimeoutCause(ctx, protocol.PageShot, fmt.Errorf("its picture was not there within %s: %w", protocol.PageShot, errSlow))
	defer cancel()
	if err := b.call(ctx, b.session, "Page.captureScreenshot", map[string]any{"format": "png", "optimizeForSpeed": true}, &shot); err != nil {
		return nil, b.failed(ctx, err)
	}
	picture, err := base64.StdEncoding.DecodeString(shot.Data)
	if err != nil {
		return nil, b.failed(ctx, err)
	}
	if len(picture) > protocol.MaxPicture {
		return nil, protocol.Errorf(protocol.TooLarge, "the picture of the page is over %d bytes", protocol.MaxPicture)
	}
	return picture, nil
}

// failed is a browser that does not do what browsers do.
func (b *browser) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, errSlow) {
		return err // nobody waits for it any more
	}
	return protocol.Errorf(protocol.Internal, "the browser in the box failed: %v (%s)", err, b.said.last())
}

// attach waits for the browser to be up and takes hold of its page.
func (b *browser) attach(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, protocol.PageStart, fmt.Errorf("it did not start within %s: %w", protocol.PageStart, errSlow))
	defer cancel()
	var open struct {
		TargetInfos []struct{ TargetID, Type string }
	}
	if err := b.call(ctx, "", "Target.setDiscoverTargets", map[string]any{"discover": true}, nil); err != nil {
		return err
	}
	for page := ""; b.session == ""; {
		if err := b.call(ctx, "", "Target.getTargets", struct{}{}, &open); err != nil {
			return err
		}
		for _, t := range open.TargetInfos {
			if t.Type == "page" {
				page = t.TargetID
			}
		}
		if page == "" { // it has none yet, and says so when it has
			if _, err := b.next(ctx); err != nil {
				return err
			}
			continue
		}
		var got struct{ SessionID string }
		if err := b.call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": page, "flatten": true}, &got); err != nil {
			return err
		}
		b.session = got.SessionID
	}
	if err := b.call(ctx, b.session, "Page.enable", struct{}{}, nil); err != nil {
		return err
	}
	var tree struct {
		FrameTree struct{ Frame struct{ ID, LoaderID string } }
	}
	if err := b.call(ctx, b.session, "Page.getFrameTree", struct{}{}, &tree); err != nil {
		return err
	}
	b.frame, b.blank = tree.FrameTree.Frame.ID, tree.FrameTree.Frame.LoaderID
	return b.call(ctx, b.session, "Page.setLifecycleEventsEnabled", map[string]any{"enabled": true}, nil)
}

// load opens the page and waits until all it names was fetched. The refusal says how a page
// failed, as the browser calls it.
func (b *browser) load(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, protocol.PageTime, errSlow)
	defer cancel()
	slow := protocol.Errorf(protocol.Invalid, "the page %s did not finish loading within %s", address, protocol.PageTime)
	var nav struct{ ErrorText string }
	opened := make(chan error, 1)
	go func() { // dialogs may come before it is answered
		opened <- b.call(ctx, b.session, "Page.navigate", map[string]any{"url": address}, &nav)
	}()
	loaded := make(chan error, 1)
	go func() { loaded <- b.await(ctx, "load") }()
	err := <-opened
	if err == nil && nav.ErrorText != "" {
		return protocol.Errorf(protocol.Invalid, "the page %s could not be opened: %s", address, nav.ErrorText)
	}
	if err == nil {
		err = <-loaded
	}
	switch {
	case errors.Is(err, errSlow):
		return slow
	case err != nil:
		return b.failed(ctx, err)
	}
	return nil
}

// await waits for the page, or where it leads on to another the next one, to come to a point
// of its life, and lets nothing it asks a person stop it.
func (b *browser) await(ctx context.Context, point string) error {
	for {
		e, err := b.next(ctx)
		if err != nil {
			return err
		}
		switch e.Method {
		case "Page.javascriptDialogOpening":
			if err := b.call(ctx, b.session, "Page.handleJavaScriptDialog", map[string]any{"accept": true}, nil); err != nil {
				return err
			}
		case "Page.lifecycleEvent":
			var at struct{ Name, FrameID, LoaderID string }
			if json.Unmarshal(e.Params, &at) == nil && at.Name == point && at.FrameID == b.frame && at.LoaderID != b.blank {
				return nil
			}
		}
	}
}

// settle gives a page that has loaded a moment: for what its scripts fetch, its fonts and
// its drawing.
func (b *browser) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, protocol.PageSettle)
	defer cancel()
	_ = b.await(ctx, "networkIdle")
	const drawn = `document.fonts.ready.then(() => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r))))`
	_ = b.call(ctx, b.session, "Runtime.evaluate", map[string]any{"expression": drawn, "awaitPromise": true}, nil)
}
