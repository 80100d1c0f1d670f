// Package jsonrpc is the framing that both ends of the stdio adapter share:
// JSON-RPC 2.0 messages whose parts stay raw, so that whatever an agent or the
// server puts into them passes through unchanged.
//
// Reading order: jsonrpc.go (a message and its kinds), line.go (one message a line).
package jsonrpc

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Error codes of JSON-RPC 2.0, section 5.1, and the first code of its range for servers.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeInternal       = -32603
	CodeServer         = -32000
)

// Message is a request (Method and ID), a notification (Method alone) or a
// response (ID with Result or Error).
type Message struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  json.RawMessage
}

// wire is the form of Message on the line.
type wire struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// ErrorBody is the error member of a response.
type ErrorBody struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

// IsRequest reports whether the sender waits for a response.
func (m Message) IsRequest() bool { return m.Method != "" && hasID(m.ID) }

// IsNotification reports whether m wants no response.
func (m Message) IsNotification() bool { return m.Method != "" && !hasID(m.ID) }

// IsResponse reports whether m answers a request.
func (m Message) IsResponse() bool {
	return m.Method == "" && hasID(m.ID) && (m.Result != nil || m.Error != nil)
}

func hasID(id json.RawMessage) bool { return len(id) > 0 && !bytes.Equal(id, []byte("null")) }

// MarshalJSON writes m on one line, HTML characters unescaped, as the sender wrote them.
func (m Message) MarshalJSON() ([]byte, error) {
	return Compact(wire{"2.0", m.ID, m.Method, m.Params, m.Result, m.Error})
}

// UnmarshalJSON reads one message. The version member is not insisted on: some clients leave it out.
func (m *Message) UnmarshalJSON(b []byte) error {
	var w wire
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*m = Message{w.ID, w.Method, w.Params, w.Result, w.Error}
	return nil
}

// Compact is json.Marshal without HTML escaping and without line breaks.
func Compact(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Must is Compact for values built by this program, which cannot fail to marshal.
func Must(v any) json.RawMessage {
	b, err := Compact(v)
	if err != nil {
		panic(fmt.Sprintf("jsonrpc: a value of our own does not marshal: %v", err))
	}
	return b
}

// Fail is the error response to the request id.
func Fail(id json.RawMessage, code int, message string, data any) Message {
	if len(id) == 0 {
		id = json.RawMessage("null")
	}
	return Message{ID: id, Error: Must(ErrorBody{code, message, data})}
}

// WithMember returns the JSON object with one member set; every other member keeps its bytes.
// An absent or null object counts as empty.
func WithMember(object json.RawMessage, name string, value any) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if hasID(object) {
		if err := json.Unmarshal(object, &members); err != nil {
			return nil, fmt.Errorf("set %q: %w", name, err)
		}
	}
	raw, err := Compact(value)
	if err != nil {
		return nil, fmt.Errorf("set %q: %w", name, err)
	}
	members[name] = raw
	return Compact(members)
}

// Member returns one member of a JSON object, or nil where there is none.
func Member(object json.RawMessage, name string) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(object, &members) != nil {
		return nil
	}
	return members[name]
}
