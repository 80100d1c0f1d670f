package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"parallelsandbox/domain/fault"
)

// How often a page that is open is made again: at once when something happened, but not
// more often than liveRest, and now and then because ages and costs grow by themselves.
const (
	liveRest = 300 * time.Millisecond
	liveTick = 5 * time.Second
)

// builder makes a page from a request, also again and again while it is open.
type builder func(r *http.Request, v *visit) (page, error)

// plain shows what a builder makes.
func (a *App) plain(w http.ResponseWriter, r *http.Request, v *visit, b builder) error {
	p, err := b(r, v)
	if err != nil {
		return err
	}
	return a.show(w, r, v, http.StatusOK, p)
}

// follow streams the parts of a page that have changed, as server-sent events.
func (a *App) follow(name string, b builder) handler {
	return func(w http.ResponseWriter, r *http.Request, v *visit) error {
		parts := map[string]string{} // name of the region to the digest of what was sent
		if _, err := a.changed(r, v, b, parts); err != nil {
			return err
		}
		a.live.Add(1)
		defer a.live.Done()
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(a.open, cancel)()
		out := http.NewResponseController(w)
		h := w.Header()
		h.Set("Content-Type", "text/event-stream")
		h.Set("X-Accel-Buffering", "no") // a proxy in between passes on what there is
		clear(parts)                     // what happened since the page was made is not known here: send all once
		err := a.stream(ctx, w, out, r.WithContext(ctx), v, b, parts)
		if ctx.Err() == nil {
			a.Log.Debug("stream of news has ended", "page", name, "err", err)
		}
		return nil
	}
}

func (a *App) stream(ctx context.Context, w http.ResponseWriter, out *http.ResponseController, r *http.Request, v *visit, b builder, parts map[string]string) error {
	at, err := a.Control.Ledger.Head(ctx)
	for err == nil {
		var news map[string]string
		v.now = a.Control.Now()
		if v.Session != nil && v.now.Unix() >= v.Session.Expires {
			return errSignIn
		}
		news, err = a.changed(r, v, b, parts)
		if err != nil && fault.KindOf(err) != fault.Unavailable && fault.KindOf(err) != fault.Timeout {
			return err
		}
		text := ": nothing new\n\n" // also tells whether anybody is still there
		if len(news) > 0 {
			raw, err := json.Marshal(news)
			if err != nil {
				return err
			}
			text = "data: " + string(raw) + "\n\n"
		}
		if _, err := fmt.Fprint(w, text); err != nil {
			return err
		}
		if err := out.Flush(); err != nil {
			return err
		}
		if err = pause(ctx, liveRest); err != nil {
			return err
		}
		wait, cancel := context.WithTimeout(ctx, liveTick)
		next, werr := a.Control.Changed(wait, at)
		late := wait.Err() != nil
		cancel()
		switch {
		case werr == nil:
			at = next
		case !late:
			err = werr
		}
	}
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// changed makes the page again and returns the regions that differ from those sent before.
func (a *App) changed(r *http.Request, v *visit, b builder, sent map[string]string) (map[string]string, error) {
	p, err := b(r, v)
	if err != nil {
		return nil, err
	}
	f, err := a.frame(r, v, p)
	if err != nil {
		return nil, err
	}
	news, err := map[string]string{}, error(nil)
	for _, region := range append([]string{"nav"}, p.Regions...) {
		var body any = p.Body
		if region == "nav" {
			body = f
		}
		text, perr := a.part(v, region, body)
		err = errors.Join(err, perr)
		sum := sha256.Sum256([]byte(text))
		if digest := hex.EncodeToString(sum[:8]); sent[region] != digest {
			sent[region], news[region] = digest, strings.TrimSpace(text)
		}
	}
	return news, err
}
