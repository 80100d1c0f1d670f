package mcp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"parallelsandbox/domain/fault"
)

// input checks the arguments of a tool before anything is done with them.
type input struct {
	schema   schema
	compiled *jsonschema.Schema
}

func compile(s schema) (input, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(mustJSON(s)))
	if err != nil {
		return input{}, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:input.json", doc); err != nil {
		return input{}, err
	}
	compiled, err := c.Compile("mem:input.json")
	return input{s, compiled}, err
}

// decode fills v from arguments, or says in one sentence what is wrong with which field.
func (in input) decode(arguments any, v any) error {
	if arguments == nil {
		arguments = map[string]any{}
	}
	given, ok := arguments.(map[string]any)
	if !ok {
		return fault.New(fault.Invalid, "arguments must be an object")
	}
	given = in.withoutNulls(given)
	if err := in.compiled.Validate(given); err != nil {
		invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
		if !ok {
			return fmt.Errorf("check arguments: %w", err)
		}
		return in.explain(invalid)
	}
	if err := json.Unmarshal(mustJSON(given), v); err != nil {
		return fmt.Errorf("read arguments: %w", err)
	}
	return nil
}

// withoutNulls leaves out optional inputs that are null: many clients write all they know of.
func (in input) withoutNulls(given map[string]any) map[string]any {
	given = maps.Clone(given)
	required, _ := in.schema["required"].([]string)
	maps.DeleteFunc(given, func(name string, v any) bool { return v == nil && !slices.Contains(required, name) })
	return given
}

// explain tells of one fault: the outermost, and of those first an input that does not
// exist, for it may be what another that is missing was meant by.
func (in input) explain(err *jsonschema.ValidationError) error {
	leaves := leavesOf(err)
	slices.SortStableFunc(leaves, func(a, b *jsonschema.ValidationError) int {
		return cmp.Or(strings.Compare(place(a.InstanceLocation), place(b.InstanceLocation)), unknownFirst(a)-unknownFirst(b))
	})
	leaf := leaves[0]
	at := place(leaf.InstanceLocation)
	switch k := leaf.ErrorKind.(type) {
	case *kind.Required:
		return fault.New(fault.Invalid, "%s is missing", child(at, k.Missing[0]))
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
		return in.unknown(leaf.InstanceLocation, k.Properties[0])
	case *kind.Type:
		return fault.New(fault.Invalid, "%s must be %s, not %s", at, article(strings.Join(k.Want, " or ")), article(k.Got))
	case *kind.Enum:
		return fault.New(fault.Invalid, "%s must be one of %s", at, mustJSON(k.Want))
	case *kind.Minimum:
		return fault.New(fault.Invalid, "%s must be at least %s", at, k.Want.RatString())
	case *kind.ExclusiveMinimum:
		return fault.New(fault.Invalid, "%s must be more than %s", at, k.Want.RatString())
	case *kind.Maximum:
		return fault.New(fault.Invalid, "%s must be at most %s", at, k.Want.RatString())
	case *kind.MinLength:
		return fault.New(fault.Invalid, "%s must not be empty", at) // no schema here wants more than 1
	case *kind.MaxLength:
		return fault.New(fault.Invalid, "%s must have at most %d characters, not %d", at, k.Want, k.Got)
	case *kind.MaxItems:
		return fault.New(fault.Invalid, "%s must have at most %d entries, not %d", at, k.Want, k.Got)
	}
	return fault.New(fault.Invalid, "%s is not as the input schema of the tool says", at)
}

func unknownFirst(err *jsonschema.ValidationError) int {
	if _, unknown := err.ErrorKind.(*kind.AdditionalProperties); unknown {
		return 0
	}
	return 1
}

func leavesOf(err *jsonschema.ValidationError) (leaves []*jsonschema.ValidationError) {
	if len(err.Causes) == 0 {
		return []*jsonschema.ValidationError{err}
	}
	for _, c := range err.Causes {
		leaves = append(leaves, leavesOf(c)...)
	}
	return leaves
}

// unknown names the nearest input that exists.
func (in input) unknown(where []string, name string) error {
	known := slices.Sorted(maps.Keys(propertiesAt(in.schema, where)))
	at := child(place(where), name)
	best := ""
	for _, k := range known {
		a, b := strings.ToLower(name), strings.ToLower(k)
		if distance(a, b) <= len(b)/4 || strings.HasPrefix(b, a) || strings.HasPrefix(a, b) {
			best = k
			break
		}
	}
	switch {
	case best != "":
		return fault.New(fault.Invalid, "there is no input %s; did you mean %s?", at, best)
	case len(known) == 0:
		return fault.New(fault.Invalid, "there is no input %s; this tool takes none", at)
	}
	return fault.New(fault.Invalid, "there is no input %s; known are %s", at, strings.Join(known, ", "))
}

func propertiesAt(s schema, where []string) schema {
	for _, step := range where {
		if items, ok := s["items"].(schema); ok {
			s = items
			continue
		}
		properties, _ := s["properties"].(schema)
		s, _ = properties[step].(schema)
	}
	properties, _ := s["properties"].(schema)
	return properties
}

// place writes where a value is, such as services[0].port.
func place(path []string) string {
	at := ""
	for _, p := range path {
		if p != "" && strings.Trim(p, "0123456789") == "" {
			at += "[" + p + "]"
			continue
		}
		at = child(at, p)
	}
	return at
}

func child(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

func article(name string) string {
	switch name[0] {
	case 'a', 'i', 'o':
		return "an " + name
	}
	if name == "null" {
		return name
	}
	return "a " + name
}

// distance is Levenshtein's, small strings only.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
