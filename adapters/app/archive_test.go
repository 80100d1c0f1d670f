package app_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"testing"
)

// archive is a gzip tar of one file.
func archive(t testing.TB) string {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	out := tar.NewWriter(zip)
	err := out.WriteHeader(&tar.Header{Name: "a.txt", Size: 1 << 20, Mode: 0o644})
	if err == nil {
		_, err = io.Copy(out, bytes.NewReader(make([]byte, 1<<20)))
	}
	if err := errors.Join(err, out.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
