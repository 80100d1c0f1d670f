package chbridge

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// library is the part of libchdb that is used.
type library struct {
	connect  func(argc int32, argv unsafe.Pointer) unsafe.Pointer
	query    func(conn, query unsafe.Pointer, queryLen uintptr, format unsafe.Pointer, formatLen uintptr) unsafe.Pointer
	destroy  func(result unsafe.Pointer)
	buffer   func(result unsafe.Pointer) unsafe.Pointer
	length   func(result unsafe.Pointer) uintptr
	failure  func(result unsafe.Pointer) string
	handlers func(enabled int32)
}

// engine runs queries, as many at once as it has connections.
type engine struct {
	lib  library
	free chan *session
}

// session is one connection. What is set on it stays until it is set otherwise.
type session struct {
	conn     unsafe.Pointer
	database string
}

// request is one query with what belongs to it.
type request struct {
	query    string
	format   string
	database string
	settings map[string]string
}

func load(path, dir string, connections int) (e *engine, err error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("load chDB: %w", err)
	}
	e = &engine{free: make(chan *session, connections)}
	for name, f := range map[string]any{
		"chdb_connect": &e.lib.connect, "chdb_query_n": &e.lib.query, "chdb_destroy_query_result": &e.lib.destroy,
		"chdb_result_buffer": &e.lib.buffer, "chdb_result_length": &e.lib.length, "chdb_result_error": &e.lib.failure,
		"chdb_set_signal_handlers_enabled": &e.lib.handlers,
	} {
		purego.RegisterLibFunc(f, handle, name)
	}
	e.lib.handlers(0) // signals are Go's
	args := [][]byte{[]byte("clickhouse\x00"), []byte("--path=" + dir + "\x00")}
	argv := []unsafe.Pointer{unsafe.Pointer(&args[0][0]), unsafe.Pointer(&args[1][0])}
	for range connections {
		conn := e.lib.connect(int32(len(argv)), unsafe.Pointer(&argv[0]))
		if conn == nil {
			return nil, fmt.Errorf("chDB does not open %s: another process may have it open", dir)
		}
		e.free <- &session{conn: *(*unsafe.Pointer)(conn)}
	}
	runtime.KeepAlive(args)
	return e, nil
}

// run carries out a query on the next connection that is free.
func (e *engine) run(r request) ([]byte, error) {
	s := <-e.free
	defer func() { e.free <- s }()
	if r.database != "" && r.database != s.database {
		if _, err := e.query(s, "USE `"+strings.ReplaceAll(r.database, "`", "``")+"`", "TSV"); err != nil {
			return nil, err
		}
		s.database = r.database
	}
	for _, k := range slices.Sorted(maps.Keys(r.settings)) {
		if _, err := e.query(s, "SET "+k+" = "+literal(r.settings[k]), "TSV"); err != nil {
			return nil, err
		}
	}
	out, err := e.query(s, r.query, r.format)
	for k := range r.settings {
		_, reset := e.query(s, "SET "+k+" = DEFAULT", "TSV")
		err = errors.Join(err, reset)
	}
	return out, err
}

func (e *engine) query(s *session, query, format string) ([]byte, error) {
	q, f := []byte(query), []byte(format)
	r := e.lib.query(s.conn, unsafe.Pointer(&q[0]), uintptr(len(q)), unsafe.Pointer(&f[0]), uintptr(len(f)))
	runtime.KeepAlive(q)
	runtime.KeepAlive(f)
	defer e.lib.destroy(r)
	if text := e.lib.failure(r); text != "" {
		return nil, exception(text)
	}
	n := e.lib.length(r)
	if n == 0 {
		return nil, nil
	}
	return bytes.Clone(unsafe.Slice((*byte)(e.lib.buffer(r)), n)), nil
}

func literal(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// failure is what the engine refused a query with.
type failure struct {
	code int32
	text string
}

func (f *failure) Error() string { return f.text }

var codeRE = regexp.MustCompile(`Code: (\d+)\. (?:DB::Exception: )?`)

// exception finds the code in a message such as "Code: 60. DB::Exception: …".
func exception(text string) error {
	f := &failure{code: 1002, text: text} // unknown exception
	if at := codeRE.FindStringSubmatchIndex(text); at != nil {
		fmt.Sscan(text[at[2]:at[3]], &f.code)
		f.text = text[at[0]:]
	}
	return f
}
