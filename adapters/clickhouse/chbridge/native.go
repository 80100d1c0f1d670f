package chbridge

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"strings"

	"github.com/ClickHouse/ch-go/compress"
	chproto "github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/ClickHouse/clickhouse-go/v2/lib/proto"
)

// revision is the newest of the protocol whose blocks are, but for their head, what the
// library reads and writes.
const revision = proto.DBMS_MIN_PROTOCOL_VERSION_WITH_INCREMENTAL_PROFILE_EVENTS

// serveNative serves the native protocol until the listener is closed.
func (b *Bridge) serveNative(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			c := &native{bridge: b, conn: conn, in: chproto.NewReader(bufio.NewReader(conn))}
			if err := c.serve(); !errors.Is(err, io.EOF) {
				fmt.Fprintln(os.Stderr, "chbridge: a connection was given up:", err)
			}
		}()
	}
}

// native is one connection.
type native struct {
	bridge   *Bridge
	conn     net.Conn
	in       *chproto.Reader
	out      chproto.Buffer
	database string
}

func (c *native) serve() error {
	if err := c.greet(); err != nil {
		return err
	}
	for {
		code, err := c.in.UVarInt()
		if err != nil {
			return err
		}
		switch chproto.ClientCode(code) {
		case chproto.ClientCodePing:
			chproto.ServerCodePong.Encode(&c.out)
		case chproto.ClientCodeQuery:
			if err := c.query(); err != nil {
				return err
			}
		default:
			return fmt.Errorf("packet %d is not expected", code)
		}
		if err := c.flush(); err != nil {
			return err
		}
	}
}

func (c *native) greet() error {
	if code, err := c.in.UVarInt(); err != nil || chproto.ClientCode(code) != chproto.ClientCodeHello {
		return errors.Join(errors.New("no greeting"), err)
	}
	var hello chproto.ClientHello
	if err := hello.Decode(c.in); err != nil {
		return err
	}
	c.database = hello.Database
	answer := chproto.ServerHello{Name: "chbridge", DisplayName: "chbridge", Timezone: "UTC", Revision: revision}
	_, _ = fmt.Sscanf(c.bridge.version, "%d.%d.%d", &answer.Major, &answer.Minor, &answer.Patch)
	answer.EncodeAware(&c.out, revision)
	return c.flush()
}

func (c *native) flush() error {
	_, err := c.conn.Write(c.out.Buf)
	c.out.Reset()
	return err
}

// query answers one query. An error returned ends the connection; a refused query does not.
func (c *native) query() error {
	var q chproto.Query
	if err := q.DecodeAware(c.in, revision); err != nil {
		return err
	}
	packed := q.Compression == chproto.CompressionEnabled
	if _, err := c.blocks(packed); err != nil { // external tables: none of ours has any
		return err
	}
	r := request{query: q.Body, format: "Native", database: c.database, settings: map[string]string{}}
	for _, s := range q.Settings {
		r.settings[s.Key] = s.Value
	}
	out, err := c.carryOut(r, packed)
	if f, ok := errors.AsType[*failure](err); ok {
		c.out.Reset()
		chproto.ServerCodeException.Encode(&c.out)
		(&chproto.Exception{Code: chproto.Error(f.code), Name: "DB::Exception", Message: f.text}).EncodeAware(&c.out, revision)
		return nil
	}
	if err != nil {
		return err
	}
	if err := c.give(out, packed); err != nil {
		return err
	}
	chproto.ServerCodeEndOfStream.Encode(&c.out)
	return nil
}

var valuesRE = regexp.MustCompile(`(?is)^\s*(INSERT\s+INTO\s+(\S+)\s*\(([^)]*)\))\s*(VALUES|FORMAT\s+Native)\s*$`)

// carryOut runs a query. For an insert it first tells the client what columns there are,
// and takes its rows.
func (c *native) carryOut(r request, packed bool) ([]byte, error) {
	m := valuesRE.FindStringSubmatch(r.query)
	if m == nil {
		return c.bridge.engine.run(r)
	}
	head, err := c.columns(r, m[2], m[3])
	if err != nil {
		return nil, err
	}
	if err := c.put(head, packed); err != nil {
		return nil, err
	}
	if err := c.flush(); err != nil {
		return nil, err
	}
	rows, err := c.blocks(packed)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return c.bridge.insert(r, m[1], rows)
}

func (c *native) columns(r request, table, names string) (*proto.Block, error) {
	r.query, r.format = "DESCRIBE TABLE "+table, "TSV"
	out, err := c.bridge.engine.run(r)
	if err != nil {
		return nil, err
	}
	types := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if f := strings.SplitN(line, "\t", 3); len(f) == 3 {
			types[f[0]] = strings.ReplaceAll(f[1], `\'`, `'`)
		}
	}
	block := proto.NewBlock()
	for name := range strings.SplitSeq(names, ",") {
		name = strings.Trim(strings.TrimSpace(name), "`\"")
		if err := block.AddColumn(name, column.Type(types[name])); err != nil {
			return nil, err
		}
	}
	return block, nil
}

// blocks reads blocks up to the empty one, and returns them as the library reads them.
func (c *native) blocks(packed bool) ([]byte, error) {
	var rows chproto.Buffer
	for {
		code, err := c.in.UVarInt()
		if err != nil {
			return nil, err
		}
		if chproto.ClientCode(code) != chproto.ClientCodeData {
			return nil, fmt.Errorf("packet %d where data is expected", code)
		}
		if _, err := c.in.Str(); err != nil { // name of the table
			return nil, err
		}
		if packed {
			c.in.EnableCompression()
		}
		block := proto.NewBlock()
		err = block.Decode(c.in, revision)
		c.in.DisableCompression()
		if err != nil {
			return nil, err
		}
		if block.Rows() == 0 {
			return rows.Buf, nil
		}
		if err := block.Encode(&rows, 0); err != nil {
			return nil, err
		}
	}
}

// give sends what the library answered, block for block. A client takes the first for the
// columns and misses it where there is none.
func (c *native) give(out []byte, packed bool) error {
	if len(out) == 0 {
		return c.put(proto.NewBlock(), packed)
	}
	in := chproto.NewReader(bytes.NewReader(out))
	for {
		block := proto.NewBlock()
		err := block.Decode(in, 0)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.put(block, packed); err != nil {
			return err
		}
	}
}

func (c *native) put(block *proto.Block, packed bool) error {
	chproto.ServerCodeData.Encode(&c.out)
	c.out.PutString("") // name of the table
	var plain chproto.Buffer
	if err := encode(&plain, block); err != nil {
		return err
	}
	if !packed {
		c.out.PutRaw(plain.Buf)
		return nil
	}
	w := compress.NewWriter(compress.LevelZero, compress.LZ4)
	if err := w.Compress(plain.Buf); err != nil {
		return err
	}
	c.out.PutRaw(w.Data)
	return nil
}

// encode writes a block. Without rows, columns are their names and types and nothing else.
func encode(out *chproto.Buffer, block *proto.Block) error {
	if block.Rows() > 0 {
		return block.Encode(out, revision)
	}
	if err := block.EncodeHeader(out, revision); err != nil {
		return err
	}
	for i, name := range block.ColumnsNames() {
		out.PutString(name)
		out.PutString(string(block.Columns[i].Type()))
	}
	return nil
}
