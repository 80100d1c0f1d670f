package mcp

import (
	"maps"
	"slices"
)

// schema is a JSON Schema. Its JSON is the same in every run: maps are written in order.
type schema map[string]any

// props are the properties of an object. A name that ends with ! is required.
type props map[string]schema

// object allows no other properties: a misspelt optional input would go unnoticed, and an
// agent would believe in a limit that is not there.
func object(p props) schema {
	properties, required := schema{}, []string{}
	for _, name := range slices.Sorted(maps.Keys(p)) {
		s := p[name]
		if bare := name[:len(name)-1]; name[len(name)-1] == '!' {
			name, required = bare, append(required, bare)
		}
		properties[name] = s
	}
	s := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

// open lets later releases add properties to a result.
func (s schema) open() schema {
	delete(s, "additionalProperties")
	return s
}

func array(items schema, about string) schema {
	return schema{"type": "array", "items": items, "description": about}
}

func str(about string) schema     { return schema{"type": "string", "description": about} }
func integer(about string) schema { return schema{"type": "integer", "description": about} }
func boolean(about string) schema { return schema{"type": "boolean", "description": about} }
func dictOf(v schema, about string) schema {
	return schema{"type": "object", "additionalProperties": v, "description": about}
}

// with adds keywords.
func (s schema) with(pairs ...any) schema {
	s = maps.Clone(s)
	for i := 0; i < len(pairs); i += 2 {
		s[pairs[i].(string)] = pairs[i+1]
	}
	return s
}

func (s schema) described(about string) schema { return s.with("description", about) }
