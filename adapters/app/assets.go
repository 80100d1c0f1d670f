package app

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

// Ours is embedded as it was written; the bundles of what others wrote are there only where
// .ci/setup has made them.
var (
	//go:embed web/style.css web/app.js web/icon.svg
	ours embed.FS
	//go:embed all:dist
	bundles embed.FS
)

// assets is what pages load, under names that change with what is in it, so that browsers
// keep it for good.
type assets struct {
	address map[string]string // "style.css" to "/assets/style-1a2b3c.css"
	by      map[string]*asset // by the name in the address
}

type asset struct {
	raw    []byte
	packed func() []byte // by gzip; made when it is first asked for
	kind   string
}

func loadAssets() (*assets, error) {
	a := &assets{address: map[string]string{}, by: map[string]*asset{}}
	for dir, files := range map[string]embed.FS{"web": ours, "dist": bundles} {
		err := fs.WalkDir(files, dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") {
				return err
			}
			raw, err := files.ReadFile(p)
			if err == nil {
				a.add(d.Name(), raw)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("app: assets: %w", err)
		}
	}
	return a, nil
}

func (a *assets) add(name string, raw []byte) {
	sum, ext := sha256.Sum256(raw), path.Ext(name)
	hashed := strings.TrimSuffix(name, ext) + "-" + hex.EncodeToString(sum[:6]) + ext
	a.address[name] = "/assets/" + hashed
	a.by[hashed] = &asset{raw: raw, kind: mime.TypeByExtension(ext), packed: sync.OnceValue(func() []byte { return pack(raw) })}
}

// pack writes to memory, which does not fail.
func pack(raw []byte) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	_, _ = z.Write(raw)
	_ = z.Close()
	return b.Bytes()
}

// of is the address of an asset; empty for a bundle that was not made.
func (a *assets) of(name string) string { return a.address[name] }

func (a *assets) serve(w http.ResponseWriter, r *http.Request) {
	x := a.by[path.Base(r.URL.Path)]
	if x == nil {
		http.NotFound(w, r)
		return
	}
	h, body := w.Header(), x.raw
	h.Set("Content-Type", x.kind)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = x.packed()
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // whoever asked may have gone
}
