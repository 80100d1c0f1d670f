// Package protocol is the language spoken between the host and boxd, the agent inside a
// box: paths, JSON bodies, refusals, and the frames of a streamed answer. Both ends
// import it and it imports neither.
//
// The transport is HTTP/2 without TLS on a connection that boxd dialled; the host is the
// HTTP client. Everything the host reads may have been written by a hostile box, so every
// length here is bounded.
//
// Read this file, then exec.go, files.go and display.go for the bodies, then frame.go.
package protocol

import "fmt"

// Version is what boxd says it speaks. The host refuses nothing by it; it is for people.
const Version = "1"

// Paths of the operations.
const (
	PathHealth    = "/v1/health"    // GET → Health
	PathConfig    = "/v1/config"    // PUT Config → Health
	PathExec      = "/v1/exec"      // POST ExecRequest → frames
	PathProcesses = "/v1/processes" // GET → []Background
	PathKill      = "/v1/kill"      // POST KillRequest → {}
	PathFiles     = "/v1/files"     // GET ?path= → bytes, PUT ?dest= tar → frames
	PathDial      = "/v1/dial"      // POST ?port= → bytes both ways
	PathShutdown  = "/v1/shutdown"  // POST ShutdownRequest → {}
)

// Code is the stable kind of a refusal by the guest.
type Code string

const (
	Invalid   Code = "invalid"   // the request can never work
	NotFound  Code = "not_found" // no such path, process or route
	Conflict  Code = "conflict"  // something is in the way: a port, a directory
	TooLarge  Code = "too_large" // over a limit that the message names
	Exhausted Code = "exhausted" // the box is out of processes, memory or disk
	Refused   Code = "refused"   // nothing listens on that port
	Stuck     Code = "stuck"     // the time of a command was up, and it does not end when it is killed
	Missing   Code = "missing"   // the image of the box lacks what it takes
	Internal  Code = "internal"  // boxd's own failure
)

// Error is a refusal by the guest: nothing is unknown about its outcome, unless the code is Stuck.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	// Service, Port and Holder are set when a port of the wiring table is taken.
	Service string `json:"service,omitempty"`
	Port    int    `json:"port,omitempty"`
	Holder  string `json:"holder,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Errorf makes a refusal.
func Errorf(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Message: fmt.Sprintf(format, args...)}
}

// Health is what boxd says about itself.
type Health struct {
	Version   string `json:"version"`
	BoxID     string `json:"boxId,omitempty"`
	UptimeMs  int64  `json:"uptimeMs"`
	Processes int    `json:"processes"` // in the whole box
	Running   int    `json:"running"`   // commands boxd itself runs now
	Revision  int64  `json:"revision"`  // of the configuration in force; 0 before the first
	// Services is the wiring table in force.
	Services        []Service `json:"services"`
	ExternalBaseURL string    `json:"externalBaseUrl,omitempty"`
	// Warnings are things that do not work as asked though nothing failed: for example
	// that http://<name> without a port is not served because port 80 is taken.
	Warnings []string `json:"warnings,omitempty"`
	// Display is nil where the image of the box has none.
	Display *Display `json:"display,omitempty"`
}

// Mode says where a service of the wiring table is.
type Mode string

const (
	InBox    Mode = "box"      // the box serves it
	External Mode = "external" // boxd forwards it to the external base URL
)

// Service is one row of the wiring table.
type Service struct {
	Name string `json:"name"` // DNS label
	Port int    `json:"port"`
	Mode Mode   `json:"mode"`
}

// Config is everything the host tells a box. A revision at or below the one in force for
// the same box changes nothing, so the host may send it as often as it likes. Without Env
// or Hostname the same box keeps those it has: rewiring needs no secrets.
type Config struct {
	BoxID           string            `json:"boxId"`
	Revision        int64             `json:"revision"`
	Hostname        string            `json:"hostname,omitempty"`
	Env             map[string]string `json:"env,omitzero"` // secrets; kept in memory only; nil keeps, empty clears
	Services        []Service         `json:"services,omitempty"`
	ExternalBaseURL string            `json:"externalBaseUrl,omitempty"`
}

// ShutdownRequest asks for SIGTERM to every process, then SIGKILL after the grace.
type ShutdownRequest struct {
	GraceMs int64 `json:"graceMs"`
}
