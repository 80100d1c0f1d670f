package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"

	"parallelsandbox/hypervisor/boxd/protocol"
)

// Put unpacks a tar, gzipped or plain, beneath dest in the work directory of the box. It
// reads r no faster than the box writes. An archive is taken whole or not at all; limits
// of 0 are the box's own. After an error one Read of r may still be under way.
func (c *Client) Put(ctx context.Context, dest string, r io.Reader, l protocol.PutLimits) (protocol.PutResult, error) {
	q := url.Values{}
	q.Set(protocol.ParamDest, dest)
	q.Set(protocol.ParamMaxBytes, strconv.FormatInt(l.MaxBytes, 10))
	q.Set(protocol.ParamMaxEntries, strconv.FormatInt(l.MaxEntries, 10))
	q.Set(protocol.ParamHeartbeat, strconv.FormatInt(max(c.beat.Milliseconds(), 1), 10))
	var res protocol.PutResult
	k, err := c.begin(ctx, order{
		method:   http.MethodPut,
		path:     protocol.PathFiles,
		query:    q,
		body:     func() io.Reader { return struct{ io.Reader }{r} }, // never closed by us
		beats:    true,
		patience: silences * c.beat,
	})
	if err != nil {
		return res, err
	}
	defer k.end()
	err = newFrames(k).last(protocol.Stored, &res)
	return res, err
}

// Download is a file or directory on its way out of a box. Read it to io.EOF, which comes
// only after the box said that all of it was sent, and Close it.
type Download struct {
	Name string      // last element of the path; the box chose it, so do not trust it
	Dir  bool        // a tar.gz with the directory as its top entry; else raw bytes
	Size int64       // of a file; -1 for a directory
	Mode fs.FileMode // permission bits

	call   *call
	r      *bufio.Reader // of call
	result protocol.GetResult
	ended  error
}

// readAhead is how much of a download is taken from the transport at once. Each taking
// sends the box word of the room made, and a box is slow to wake.
const readAhead = 256 << 10

// Get opens a file or directory of the work directory.
func (c *Client) Get(ctx context.Context, path string) (*Download, error) {
	q := url.Values{}
	q.Set(protocol.ParamPath, path)
	k, err := c.begin(ctx, order{
		method:   http.MethodGet,
		path:     protocol.PathFiles,
		query:    q,
		again:    true,
		patience: silences * c.beat,
	})
	if err != nil {
		return nil, err
	}
	h := k.resp.Header
	d := &Download{Dir: h.Get(protocol.HeaderKind) == protocol.KindDir, Size: -1, call: k, r: bufio.NewReaderSize(k, readAhead)}
	if d.Name, err = url.PathUnescape(h.Get(protocol.HeaderName)); err != nil {
		d.Name = ""
	}
	if n, err := strconv.ParseInt(h.Get(protocol.HeaderSize), 10, 64); err == nil && n >= 0 && !d.Dir {
		d.Size = n
	}
	if m, err := strconv.ParseUint(h.Get(protocol.HeaderMode), 8, 32); err == nil {
		d.Mode = fs.FileMode(m).Perm()
	}
	return d, nil
}

func (d *Download) Read(p []byte) (int, error) {
	if d.ended != nil {
		return 0, d.ended
	}
	n, err := d.r.Read(p)
	if err == io.EOF {
		err = d.verdict()
	}
	d.ended = err
	return n, err
}

// verdict turns the end of the stream into the end of the file, if the box says so.
func (d *Download) verdict() error {
	s, err := url.QueryUnescape(d.call.resp.Trailer.Get(protocol.TrailerResult))
	if err == nil && s != "" {
		err = json.Unmarshal([]byte(s), &d.result)
	}
	switch {
	case err != nil || s == "":
		return fmt.Errorf("%w: the download ended early", ErrLost)
	case d.result.Error != nil:
		return d.result.Error
	}
	return io.EOF
}

// Result says, after io.EOF, what of a directory could not be taken as it was.
func (d *Download) Result() protocol.GetResult { return d.result }

// Close ends the download wherever it is.
func (d *Download) Close() error {
	d.call.end()
	if d.ended == nil {
		d.ended = fs.ErrClosed
	}
	return nil
}
