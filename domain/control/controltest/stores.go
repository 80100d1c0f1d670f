package controltest

import (
	"bytes"
	"context"
	"io"
	"sync"

	"parallelsandbox/domain/control"
	"parallelsandbox/domain/fault"
)

var (
	_ control.Vault = (*Vault)(nil)
	_ control.Blobs = (*Blobs)(nil)
)

// Vault keeps secret values in memory.
type Vault struct {
	mu     sync.Mutex
	values map[[2]string]string // by tenant and name
	err    error
}

// Fail makes every call fail, until it is told nil.
func (v *Vault) Fail(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.err = err
}

// Set implements control.Vault.
func (v *Vault) Set(_ context.Context, tenant, name string, value []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err != nil {
		return v.err
	}
	if v.values == nil {
		v.values = map[[2]string]string{}
	}
	v.values[[2]string{tenant, name}] = string(value)
	return nil
}

// Remove implements control.Vault.
func (v *Vault) Remove(_ context.Context, tenant, name string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.values, [2]string{tenant, name})
	return v.err
}

// Values implements control.Vault.
func (v *Vault) Values(_ context.Context, tenant string, names []string) (map[string]string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := map[string]string{}
	for _, name := range names {
		if value, ok := v.values[[2]string{tenant, name}]; ok {
			out[name] = value
		}
	}
	return out, v.err
}

// Blobs keeps downloads in memory.
type Blobs struct {
	mu  sync.Mutex
	by  map[string][]byte
	err error
}

// Fail makes every call fail, until it is told nil.
func (b *Blobs) Fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

// Put implements control.Blobs.
func (b *Blobs) Put(_ context.Context, key string, body io.Reader) (int64, error) {
	data, err := io.ReadAll(body)
	if err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return 0, b.err
	}
	if b.by == nil {
		b.by = map[string][]byte{}
	}
	b.by[key] = data
	return int64(len(data)), nil
}

// Open implements control.Blobs.
func (b *Blobs) Open(_ context.Context, key string) (io.ReadCloser, int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, ok := b.by[key]
	if b.err != nil {
		return nil, 0, b.err
	}
	if !ok {
		return nil, 0, fault.New(fault.NotFound, "the download is kept no longer; get the file again")
	}
	return io.NopCloser(bytes.NewReader(data)), int64(len(data)), nil
}
