package rest

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
)

type syncedBody struct {
	OK    bool  `json:"ok"`
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`

	IdempotencyKey string `json:"idempotencyKey,omitempty"`
	Repeated       bool   `json:"repeated,omitempty"` // an earlier upload under the key wrote it; this one was not read
}

// sync streams a gzip tar into a box. What the body is, its own first bytes say: clients
// label it in too many ways.
func (s *server) sync(w http.ResponseWriter, r *http.Request, who control.Caller) error {
	q := queryOf(r, "dest", "repo", "idempotencyKey")
	key := q.idempotencyKey(r)
	if q.err != nil {
		return q.err
	}
	if r.ContentLength > s.MaxUpload {
		return tooLarge(s.MaxUpload)
	}
	up := &upload{
		body: bufio.NewReaderSize(&stalling{http.NewResponseController(w), r.Body, s.UploadStall}, 64<<10), limit: s.MaxUpload,
	}
	put, err := s.Control.Sync(r.Context(), who, control.SyncRequest{Box: boxOf(r), Dest: q.Get("dest"), Repo: q.Get("repo"), Archive: up, IdempotencyKey: key})
	if why := up.refused.Load(); why != nil {
		return *why // the box only knows that its input broke off
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, syncedBody{OK: true, Files: put.Files, Bytes: put.Bytes, IdempotencyKey: key, Repeated: put.Repeated})
}

func tooLarge(limit int64) error {
	return fault.New(fault.TooLarge, "an upload has at most %d bytes, compressed; leave out what can be built or installed in the box, or send it in parts", limit)
}

// upload is a gzip stream of bounded size. It remembers why it broke off.
type upload struct {
	body    *bufio.Reader
	limit   int64
	read    int64
	refused atomic.Pointer[error] // set by whoever reads, which may be another goroutine
}

func (u *upload) Read(p []byte) (int, error) {
	if u.read == 0 {
		if err := u.begin(); err != nil {
			return 0, u.refuse(err)
		}
	}
	n, err := u.body.Read(p)
	u.read += int64(n)
	switch {
	case u.read > u.limit:
		return 0, u.refuse(tooLarge(u.limit))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, u.refuse(fault.New(fault.Timeout, "the upload sent nothing for too long and was given up; files before that point are in the box, so send it again"))
	case err != nil && err != io.EOF:
		return n, u.refuse(fault.New(fault.Invalid, "the upload broke off before its end; files before that point are in the box, so send it again").Because(err))
	}
	return n, err
}

func (u *upload) begin() error {
	head, err := u.body.Peek(2)
	switch {
	case len(head) == 2 && head[0] == 0x1f && head[1] == 0x8b:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.New(fault.Timeout, "the upload sent nothing for too long and was given up; send it again")
	}
	return fault.New(fault.Invalid, "the body must be a tar archive compressed with gzip, such as tar -cz makes")
}

func (u *upload) refuse(err error) error {
	u.refused.Store(&err)
	return err
}

// stalling gives every single read a deadline of its own: an upload may take for ever,
// but not stand still. The deadline is lifted in between, while the box is the slow one.
type stalling struct {
	rc     *http.ResponseController
	body   io.Reader
	within time.Duration
}

func (s *stalling) Read(p []byte) (int, error) {
	_ = s.rc.SetReadDeadline(time.Now().Add(s.within)) // a writer without deadlines is one of a test
	defer func() { _ = s.rc.SetReadDeadline(time.Time{}) }()
	return s.body.Read(p)
}
