package rest

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"parallelsandbox/domain/control"
)

// download serves the signed links to one kind of blobs.
func (s *server) download(kind string) answer {
	return func(w http.ResponseWriter, r *http.Request) error { return s.serveBlob(w, r, kind) }
}

// serveBlob serves a signed link. Whatever is wrong with the link is refused alike.
func (s *server) serveBlob(w http.ResponseWriter, r *http.Request, kind string) error {
	q := r.URL.Query()
	for _, values := range q {
		if len(values) > 1 {
			return control.ErrLink // which of them was signed?
		}
	}
	id := chi.URLParam(r, "id")
	link := control.SignedLink{
		Key: kind + "/" + chi.URLParam(r, "box") + "/" + id, Name: q.Get("name"), Expires: q.Get("expires"), Signature: q.Get("signature"),
	}
	body, size, err := s.Control.OpenDownload(r.Context(), link)
	if err != nil {
		return err
	}
	defer body.Close()
	h := w.Header()
	h.Set("Content-Type", contentType(kind, link.Name))
	h.Set("Content-Disposition", disposition(link.Name))
	if kind == control.Shots || kind == control.Recordings {
		h.Set("Content-Disposition", "inline") // made by us, and shown on pages
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Cache-Control", "private, no-store")
	if seeker, ok := body.(io.ReadSeeker); ok {
		h.Set("ETag", `"`+id+`"`) // a copy never changes
		http.ServeContent(w, r, "", time.Time{}, seeker)
		return nil
	}
	h.Set("Content-Length", fmt.Sprint(size))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	if n, err := io.Copy(w, body); err != nil || n != size {
		panic(http.ErrAbortHandler) // the client must not take a part for the whole
	}
	return nil
}

func contentType(kind, name string) string {
	switch kind {
	case control.Shots:
		return "image/png"
	case control.Recordings:
		return "video/mp4"
	}
	if strings.HasSuffix(name, ".gz") || strings.HasSuffix(name, ".tgz") {
		return "application/gzip"
	}
	return "application/octet-stream"
}

// disposition offers a file name in both forms of RFC 6266: plain ASCII for old clients,
// and RFC 5987 for all others. The name comes out of a box and may be anything.
func disposition(name string) string {
	name = strings.ToValidUTF8(name, "_")
	plain := strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' || strings.ContainsRune(`"\/%`, c) {
			return '_'
		}
		return c
	}, name)
	if plain == name && name != "" {
		return `attachment; filename="` + name + `"`
	}
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c < utf8.RuneSelf && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~!#$&+^`|", c) >= 0) {
			b.WriteByte(c)
		} else if c < ' ' || c == 0x7f || c == '/' || c == '\\' {
			b.WriteByte('_')
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if name == "" {
		return `attachment; filename="download"`
	}
	return `attachment; filename="` + plain + `"; filename*=UTF-8''` + b.String()
}
