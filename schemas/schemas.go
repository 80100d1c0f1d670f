// Package schemas carries the documents that say what is stored on the ledger. README.md
// says how they are kept; schematest holds values against them.
package schemas

import (
	"embed"
	"fmt"
)

//go:embed events meta
var files embed.FS

// EventSchema is the JSON Schema (2020-12) of the data of one version of an event.
func EventSchema(name string, version int) ([]byte, error) { return event(name, version, "schema") }

// EventGolden is the frozen sample of the data of one version of an event.
func EventGolden(name string, version int) ([]byte, error) { return event(name, version, "golden") }

func event(name string, version int, what string) ([]byte, error) {
	return files.ReadFile(fmt.Sprintf("events/%s/v%d.%s.json", name, version, what))
}

// EventNames lists every event that was ever written, in order.
func EventNames() ([]string, error) {
	dirs, err := files.ReadDir("events")
	if err != nil {
		return nil, err
	}
	names := make([]string, len(dirs))
	for i, d := range dirs {
		names[i] = d.Name()
	}
	return names, nil
}

// MetaSchema is the JSON Schema of what every event carries beside its data.
func MetaSchema() ([]byte, error) { return files.ReadFile("meta/v1.schema.json") }

// MetaGolden is the frozen sample of it.
func MetaGolden() ([]byte, error) { return files.ReadFile("meta/v1.golden.json") }
