package boxd

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"parallelsandbox/hypervisor/boxd/protocol"
)

// put unpacks an archive. It answers with frames because moving a large archive into
// place can take long after the last byte came.
func (a *Agent) put(w http.ResponseWriter, r *http.Request) {
	var l protocol.PutLimits
	var every int64
	for name, into := range map[string]*int64{
		protocol.ParamMaxBytes:   &l.MaxBytes,
		protocol.ParamMaxEntries: &l.MaxEntries,
		protocol.ParamHeartbeat:  &every,
	} {
		n, err := number(r, name)
		if err != nil {
			refuse(w, err)
			return
		}
		*into = n
	}
	l.MaxBytes = within(l.MaxBytes, a.opts.Limits.MaxBytes)
	l.MaxEntries = within(l.MaxEntries, a.opts.Limits.MaxEntries)

	s := newStream(r.Context(), w, every)
	res, err := a.work.Intake(r.Context(), r.URL.Query().Get(protocol.ParamDest), r.Body, l)
	if err != nil {
		s.end(protocol.Failed, refusal(err))
		return
	}
	s.end(protocol.Stored, res)
}

// within is the smaller limit; 0 asks for none.
func within(asked, most int64) int64 {
	if asked == 0 {
		return most
	}
	return min(asked, most)
}

// get sends a file as it is or a directory as an archive. The trailer says whether all of
// it came: the status is gone by the time reading fails.
func (a *Agent) get(w http.ResponseWriter, r *http.Request) {
	e, err := a.work.Export(r.URL.Query().Get(protocol.ParamPath))
	if err != nil {
		refuse(w, err)
		return
	}
	defer e.Close()
	h := w.Header()
	h.Set("Trailer", protocol.TrailerResult)
	h.Set(protocol.HeaderName, url.PathEscape(e.Name))
	h.Set(protocol.HeaderMode, strconv.FormatUint(uint64(e.Info.Mode().Perm()), 8))
	h.Set(protocol.HeaderKind, protocol.KindDir)
	h.Set("Content-Type", "application/gzip")
	if !e.Info.IsDir() {
		h.Set(protocol.HeaderKind, protocol.KindFile)
		h.Set(protocol.HeaderSize, strconv.FormatInt(e.Info.Size(), 10))
		h.Set("Content-Type", "application/octet-stream")
	}
	res, err := e.Send(r.Context(), w)
	if err != nil {
		res.Error = refusal(err)
	}
	b, _ := json.Marshal(res) // our own type
	// A header value holds no line breaks, and JSON has none outside of its strings.
	h.Set(protocol.TrailerResult, url.QueryEscape(string(b)))
}
