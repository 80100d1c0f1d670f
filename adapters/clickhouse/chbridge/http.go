package chbridge

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/ClickHouse/ch-go/compress"
	chproto "github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"
)

// notSettings are arguments of the address that are no settings of the query.
var notSettings = map[string]bool{
	"query": true, "database": true, "default_format": true, "client_protocol_version": true, "compress": true, "decompress": true,
	"query_id": true, "session_id": true, "network_compression_method": true, "network_zstd_compression_level": true,
	"wait_end_of_query": true, "user": true, "password": true, "role": true, "quota_key": true,
}

var insertRE = regexp.MustCompile(`(?is)^\s*(INSERT\s+INTO\s.*)\sFORMAT\s+Native\s*$`)

func (b *Bridge) serveHTTP(w http.ResponseWriter, r *http.Request) {
	args := r.URL.Query()
	var body io.Reader = r.Body
	if args.Get("decompress") == "1" {
		body = compress.NewReader(body)
	}
	data, err := io.ReadAll(body)
	if err != nil && !errors.Is(err, io.EOF) { // the reader of frames wraps it
		refuse(w, err)
		return
	}
	query := args.Get("query")
	if query == "" {
		query, data = string(data), nil
	}
	var out []byte
	if strings.HasPrefix(query, "SELECT displayName(), version(), revision()") {
		out, err = b.hello()
	} else {
		out, err = b.answer(requestOf(args, query), data)
	}
	if err == nil && args.Get("compress") == "1" {
		out, err = pack(out)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(out))) // the client takes 0 for "no rows"
	_, _ = w.Write(out)                                      // a client that has gone does not hear of it
}

func requestOf(args url.Values, query string) request {
	r := request{query: query, format: "Native", database: args.Get("database"), settings: map[string]string{}}
	for k := range args {
		if !notSettings[k] {
			r.settings[k] = args.Get(k)
		}
	}
	return r
}

// answer runs a query. Rows of an insert go through a file: the library takes none with a query.
func (b *Bridge) answer(r request, data []byte) ([]byte, error) {
	if len(data) == 0 {
		return b.engine.run(r)
	}
	m := insertRE.FindStringSubmatch(r.query)
	if m == nil {
		return nil, fmt.Errorf("rows came with what is no insert: %s", r.query)
	}
	return b.insert(r, m[1], data)
}

func (b *Bridge) insert(r request, into string, native []byte) ([]byte, error) {
	f, err := os.CreateTemp(b.scratch, "*.native")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(native)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	r.query = into + " FROM INFILE " + literal(f.Name()) + " FORMAT Native"
	return b.engine.run(r)
}

// hello answers the first question of a client. It claims revision 0, so that blocks are
// exchanged as the library writes and reads them.
func (b *Bridge) hello() ([]byte, error) {
	block := proto.NewBlock()
	for _, c := range [][2]string{{"displayName()", "String"}, {"version()", "String"}, {"revision()", "UInt32"}, {"timezone()", "String"}} {
		if err := block.AddColumn(c[0], column.Type(c[1])); err != nil {
			return nil, err
		}
	}
	if err := block.Append("chbridge", b.version, uint32(0), "UTC"); err != nil {
		return nil, err
	}
	var buf chproto.Buffer
	err := block.Encode(&buf, proto.DBMS_TCP_PROTOCOL_VERSION)
	return buf.Buf, err
}

// pack puts bytes into the compressed frames that a client asked for.
func pack(data []byte) ([]byte, error) {
	const frame = 1 << 20
	var out bytes.Buffer
	c := compress.NewWriter(compress.LevelZero, compress.LZ4)
	for len(data) > 0 {
		n := min(frame, len(data))
		if err := c.Compress(data[:n]); err != nil {
			return nil, err
		}
		out.Write(c.Data)
		data = data[n:]
	}
	return out.Bytes(), nil
}

func refuse(w http.ResponseWriter, err error) {
	code := int32(1002)
	if f, ok := errors.AsType[*failure](err); ok {
		code = f.code
	}
	w.Header().Set("X-ClickHouse-Exception-Code", strconv.Itoa(int(code)))
	http.Error(w, err.Error(), http.StatusInternalServerError)
}
