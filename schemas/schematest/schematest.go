// Package schematest holds what programs write against the schemas, in tests.
package schematest

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"parallelsandbox/schemas"
)

// Validator checks the data of events. It may be used by many at once.
type Validator struct {
	mu   sync.Mutex
	c    *jsonschema.Compiler
	done map[string]*jsonschema.Schema
}

// Events returns a validator of every event.
func Events(t testing.TB) *Validator {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	return &Validator{c: c, done: map[string]*jsonschema.Schema{}}
}

// Validate says why the data is not what the schema of this version of the event says.
func (v *Validator) Validate(name string, version int, data []byte) error {
	text, err := schemas.EventSchema(name, version)
	if err != nil {
		return fmt.Errorf("%s version %d has no schema: %w", name, version, err)
	}
	return v.validate(fmt.Sprintf("%s/v%d", name, version), text, data)
}

// ValidateMeta says why the metadata of an event is not what its schema says.
func (v *Validator) ValidateMeta(data []byte) error {
	text, err := schemas.MetaSchema()
	if err != nil {
		return err
	}
	return v.validate("meta/v1", text, data)
}

func (v *Validator) validate(key string, schema, data []byte) error {
	s, err := v.compiled(key, schema)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return s.Validate(value)
}

func (v *Validator) compiled(key string, text []byte) (*jsonschema.Schema, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if s := v.done[key]; s != nil {
		return s, nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", key, err)
	}
	if err := v.c.AddResource(key+".json", doc); err != nil {
		return nil, err
	}
	s, err := v.c.Compile(key + ".json")
	if err != nil {
		return nil, err
	}
	v.done[key] = s
	return s, nil
}
